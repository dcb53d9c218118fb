# SPDX-License-Identifier: Apache-2.0
"""Steelyard's TCP stack against Linux's: steelyard-peer, and an equivalent peer on kernel sockets
(docs/testing.md).

    with Peer(lab, "far", "link0", addresses) as peer:
        job = peer.listen(address, 80, send=10_000_000)
        end = KernelEnd(lab["client"].ns, 4, expect=10_000_000).connect(address, 80)
        end.wait()
        assert peer.done(job)["acknowledged"] == 10_000_000
"""

import array
import errno
import itertools
import json
import os
import socket
import struct
import threading

from tests.lab.process import CommandFailed
from tests.lab.steelyard import BUILD, SANITIZED
from tests.lab.wait import DEADLINE_S, wait_until

PEER = BUILD / "tests/peer/steelyard-peer"
TCP_CONGESTION, TCP_INFO = 13, 11
_count = itertools.count()

# ---- the bytes that connections carry (tests/peer/stream.h) --------------------------------------

WORDS, BLOCK, STEP, MASK = 65521, 65536, 104729, (1 << 64) - 1


class Stream:
    """The byte stream of a seed."""

    _made = {}

    def __new__(cls, seed):
        """Caches one table per seed, because Python makes it slowly."""
        if seed not in cls._made:
            one = super().__new__(cls)
            words = array.array("Q", (cls._word(seed, n) for n in range(WORDS)))
            table = words.tobytes()
            one.size = len(table)
            one.table = memoryview(table + table[:BLOCK])
            cls._made[seed] = one
        return cls._made[seed]

    @staticmethod
    def _word(seed, number):
        z = (seed + (number + 1) * 0x9E3779B97F4A7C15) & MASK
        z = ((z ^ z >> 30) * 0xBF58476D1CE4E5B9) & MASK
        z = ((z ^ z >> 27) * 0x94D049BB133111EB) & MASK
        return z ^ z >> 31

    def part(self, at, most):
        """Returns at most `most` bytes from `at` on."""
        begin = at // BLOCK * STEP % self.size + at % BLOCK
        return self.table[begin : begin + min(most, BLOCK - at % BLOCK)]

    def compare(self, at, data):
        """Fails at the first wrong byte."""
        data = memoryview(data)
        while data:
            right = self.part(at, len(data))
            if data[: len(right)] != right:
                wrong = next(i for i in range(len(right)) if data[i] != right[i])
                raise AssertionError(f"byte {at + wrong} of the stream is wrong")
            at += len(right)
            data = data[len(right) :]


# ---- the stack's end -----------------------------------------------------------------------------


class Peer:
    """A context manager: one stack on a host's interface. options: its command line, as Python
    words: no_sack=True, congestion="newreno"."""

    def __init__(self, lab, host, interface, addresses, **options):
        self.lab, self.host = lab, host
        self.argv = [PEER, "--stdin", "--port", interface]
        for address in addresses:
            self.argv += ["--address", address]
        for name, value in options.items():
            word = "--" + name.replace("_", "-")
            self.argv += [word] if value is True else [word, value]
        self.process = None

    def __enter__(self):
        return self.start()

    def __exit__(self, kind, error, trace):
        if kind:
            print(self.process.describe())
        if self.process.alive():
            self.process.kill() if kind else self.stop()

    def start(self):
        name = f"steelyard-peer{next(_count)}"
        self.process = self.lab.start(self.host, name, self.argv, SANITIZED, commanded=True)
        self.read, self.answers, self.talks = 0, [], []
        self.process.wait_for('"event": "ready"', 120)
        return self

    def stop(self):
        """Ends it, and discards its connections. Failed ones are no error here."""
        self.process.write_line("quit")
        if self.process.wait(60):
            raise CommandFailed(self.process.describe())

    def kill(self):
        self.process.kill()

    # ---- commands --------------------------------------------------------------------------------

    def _take(self):
        """Sorts its new output."""
        lines = self.process.output().splitlines(keepends=True)
        for line in lines[self.read :]:
            if not line.endswith("\n"):
                break
            self.read += 1
            if not line.startswith("{"):
                continue
            told = json.loads(line)
            if told["event"] == "done":
                self.talks.append(told["talk"])
            elif told["event"] != "ready":
                self.answers.append(told)

    def _until(self, condition, what, deadline_s):
        def seen():
            ended = not self.process.alive()
            self._take()
            found = condition()
            if ended and not found:
                raise CommandFailed(self.process.describe())
            return found

        return wait_until(seen, what, deadline_s)

    def command(self, line, event):
        """Sends one command; returns its answer."""
        self._take()
        self.answers.clear()
        self.process.write_line(line)
        self._until(lambda: self.answers, f"an answer to {line}", 60)
        told = self.answers.pop(0)
        if told["event"] != event:
            raise CommandFailed(f"{line}: {told}")
        return told

    def _job(self, line, words):
        for name, value in words.items():
            if value is False:
                continue
            line += f" {name.replace('_', '-')} {'on' if value is True else value}"
        return self.command(line, "job")["job"]

    def listen(self, address, port, **words):
        return self._job(f"listen {address} {port}", words)

    def connect(self, address, to, to_port, port=0, **words):
        return self._job(f"connect {address} {port} {to} {to_port}", words)

    def resume(self, job):
        self.command(f"resume {job}", "ok")

    def close(self, job):
        self.command(f"close {job}", "ok")

    def stats(self):
        return self.command("stats", "stats")

    def counters(self):
        return self.stats()["counters"]

    def talking(self, job):
        """Returns the job's open connections."""
        return [one for one in self.stats()["talks"] if one["job"] == job]

    def ended(self, job, count=1, deadline_s=DEADLINE_S):
        """Waits until so many of its connections have ended; returns the last of them."""

        def those():
            found = [one for one in self.talks if one["job"] == job]
            return found if len(found) >= count else None

        return self._until(those, f"{count} connections of job {job} end", deadline_s)[count - 1]

    def done(self, job, count=1, deadline_s=DEADLINE_S):
        """The same for connections that must end without error."""
        one = self.ended(job, count, deadline_s)
        assert one["error"] == "" and one["wrong_at"] == -1, one
        return one


# ---- the kernel's end ----------------------------------------------------------------------------


def inet(family):
    return socket.AF_INET if family == 4 else socket.AF_INET6


class KernelEnd:
    """One kernel connection, with a thread that sends the stream and compares received bytes.

    send: bytes, followed by a close; expect: bytes that must arrive before the peer's close (None:
    any number); after_end: sends once the peer has closed its side; echo: returns received bytes,
    so many at a time; end_first: closes its side at once; hold: reads after resume(); reset_after:
    resets the connection after so many received bytes. congestion: explicit, because defaults
    differ, and BBR leaves others little of a short queue. options: (level, name, value) to be set
    before it starts."""

    def __init__(
        self,
        ns,
        family,
        send=0,
        expect=None,
        seed=1,
        after_end=False,
        end_first=False,
        echo=0,
        hold=False,
        reset_after=0,
        write=1 << 18,
        congestion="cubic",
        options=(),
    ):
        self.ns, self.family = ns, family
        self.to_send, self.expect, self.stream = send, expect, Stream(seed)
        self.after_end, self.end_first, self.echo, self.write = after_end, end_first, echo, write
        self.reset_after = reset_after
        self.going = threading.Event()
        if not hold:
            self.going.set()
        self.sent = self.received = 0
        self.error, self.info = None, {}
        self.listener = None
        self.one = ns.socket(inet(family))
        self.one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.one.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, congestion.encode())
        for level, name, value in options:
            self.one.setsockopt(level, name, value)

    def connect(self, address, port, local=None):
        """From the given port, if any."""
        return self._begin(lambda: self._connect(address, port, local))

    def listen(self, address, port):
        """For one connection."""
        self.listener = self.one
        self.listener.bind((address, port))
        self.listener.listen(1)
        return self._begin(self._accept)

    def _connect(self, address, port, local):
        if local:
            self.one.bind(("", local))
        # The last ACK of the previous connection from this port may still be in flight.
        wait_until(lambda: self._connects(address, port), "the local port is free")

    def _connects(self, address, port):
        try:
            self.one.connect((address, port))
        except OSError as error:
            if error.errno != errno.EADDRNOTAVAIL:
                raise
            return False
        return True

    def _accept(self):
        with self.listener:
            self.one, _ = self.listener.accept()

    def _begin(self, opening):
        self.thread = threading.Thread(target=self._run, args=(opening,), daemon=True)
        self.thread.start()
        return self

    def _run(self, opening):
        try:
            opening()
            if self.echo:
                self._echo()
            else:
                self._talk()
            self.info = tcp_info(self.one)
        except (OSError, AssertionError) as error:
            self.error = error
        finally:
            self.one.close()

    def _talk(self):
        sender = threading.Thread(target=self._send, daemon=True)
        if self.end_first:
            self.one.shutdown(socket.SHUT_WR)
        elif not self.after_end and self.to_send:
            sender.start()
        self._receive()
        if self.end_first:
            return
        if self.after_end or not self.to_send:
            sender.start()
        sender.join()

    def _send(self):
        try:
            while self.sent < self.to_send:
                most = min(self.write, self.to_send - self.sent)
                self.sent += self.one.send(self.stream.part(self.sent, most))
            self.one.shutdown(socket.SHUT_WR)
        except OSError as error:
            self.error = self.error or error

    def _receive(self):
        self.going.wait()
        room = bytearray(1 << 18)
        while count := self.one.recv_into(room):
            self.stream.compare(self.received, memoryview(room)[:count])
            self.received += count
            if self.reset_after and self.received >= self.reset_after:
                self.one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.one.close()
                raise ConnectionAbortedError("as the test wanted")

    def _echo(self):
        whole = socket.MSG_WAITALL if self.echo > 1 else 0
        while data := self.one.recv(self.echo if whole else 1 << 16, whole):
            self.received += len(data)
            self.one.sendall(data)
        self.one.shutdown(socket.SHUT_WR)

    def resume(self):
        self.going.set()

    def wait(self, deadline_s=DEADLINE_S):
        """Waits for its end; fails unless all bytes arrived."""
        self.join(deadline_s)
        if self.error:
            raise self.error
        assert self.sent == self.to_send
        assert self.expect in (None, self.received), (self.expect, self.received)
        return self

    def join(self, deadline_s=DEADLINE_S):
        """Waits for its end, successful or not."""
        self.thread.join(deadline_s)
        assert not self.thread.is_alive(), f"it hangs: {self.sent} sent, {self.received} received"


# Offsets in struct tcp_info of <linux/tcp.h>, and format letters of module struct.
INFO = {
    "state": (0, "B"),
    "snd_mss": (16, "I"),
    "pmtu": (60, "I"),
    "rtt_us": (68, "I"),
    "total_retrans": (100, "I"),
    "bytes_acked": (120, "Q"),
    "bytes_received": (128, "Q"),
    "delivered_ce": (196, "I"),
    "dsack_dups": (216, "I"),
}


def tcp_info(one):
    """Returns the kernel's TCP_INFO of a connection."""
    raw = one.getsockopt(socket.IPPROTO_TCP, TCP_INFO, 256)
    return {name: struct.unpack_from(kind, raw, at)[0] for name, (at, kind) in INFO.items()}


def megabytes(default):
    """Returns the bytes that a test transfers: so many MB, or SY_INTEROP_MB for long runs."""
    return int(float(os.environ.get("SY_INTEROP_MB", default)) * 1_000_000)
