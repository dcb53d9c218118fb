# SPDX-License-Identifier: Apache-2.0
"""A testbed for benchmarks with two processes: the generator on one core, and on the other the
program being measured, a forwarder or testpmd, each behind a memif link of its own.

One arm: packets enter and leave by the same link. A forwarder then polls one queue, as macswap
does, its bursts are as long as traffic makes them, and both directions of a session are compared
with the baseline over rings of the same kind. A second arm would add the cost of polling it.

The generator is the memif client, without copies; both servers copy in and out. DPDK 22.11's server
may crash when its client leaves under traffic, so servers are stopped first.

A program that is not being measured is stopped by SIGSTOP, so it takes no time of the core.
"""

import contextlib
import ipaddress
import json
import os
import select
import shutil
import signal
import subprocess
import time
from pathlib import Path

from bench import machine
from tests.lab import reap
from tests.lab.api import forwarder as pb
from tests.lab.netns import Namespace
from tests.lab.process import Process
from tests.lab.wait import wait_until
from tests.wire.control import Control

FORWARDER = machine.ROOT / "build/dev/dataplane/forwarder/steelyard-forwarder"
GENERATOR = machine.PROGRAMS / "generator/steelyard-generator"
TESTPMD = "dpdk-testpmd"

GENERATOR_MB, TESTPMD_MB, FORWARDER_MB = 128, 96, 128  # of each
NULL_FRAME = 60  # bytes
SESSION_BYTES = 70  # in the tables, with a margin
OTHERS = 16 << 20  # needed by any table, and parts of pages
ANSWER_S = 120  # of the generator: several times what it needs for the most sessions
KEPT_S, FORGOTTEN_S = 3600, 1  # idle sessions: of known flows, of short-lived ones
TIME_WAIT_S = 1  # until a TCP session is deleted


def needs(sessions):
    """Bytes of huge pages that a testbed takes."""
    programs = (2 * GENERATOR_MB + TESTPMD_MB + FORWARDER_MB) << 20
    return programs + OTHERS + sessions * SESSION_BYTES


class Generator:
    """steelyard-generator, controlled by lines."""

    def __init__(self, core, links, log):
        command = [GENERATOR, "--core", core, "--memory", GENERATOR_MB]
        for name, devargs in links.items():
            command += ["--link", f"{name}={devargs}"]
        with open(log, "w") as said:
            self.child = subprocess.Popen(
                machine.first(command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                bufsize=0,
                start_new_session=True,
            )
        machine.prefer(self.child.pid)
        self.log = Path(log)

    def said(self):
        """The end of its log."""
        return self.log.read_text(errors="replace")[-2000:]

    def line(self, asked, deadline_s):
        """The next line of its output, without the newline."""
        got, end = b"", time.monotonic() + deadline_s
        while not got.endswith(b"\n"):
            left = max(0, end - time.monotonic())
            if not select.select([self.child.stdout], [], [], left)[0]:
                raise machine.Failed(
                    f"the generator did not answer {asked!r} within {deadline_s:g} s\n{self.said()}"
                )
            more = os.read(self.child.stdout.fileno(), 1 << 16)
            if not more:
                raise machine.Failed(f"the generator ended over {asked!r}\n{self.said()}")
            got += more
        return got[:-1]

    def ask(self, verb, deadline_s=ANSWER_S, **keys):
        """Sends one command; returns the answer. Keys stay set."""
        asked = " ".join([verb, *(f"{key}={value}" for key, value in keys.items())])
        with contextlib.suppress(BrokenPipeError):
            self.child.stdin.write(f"{asked}\n".encode())
        answer = json.loads(self.line(asked, deadline_s))
        if "error" in answer:
            raise machine.Failed(f"{asked}: {answer['error']}")
        return answer

    def close(self):
        with contextlib.suppress(OSError):
            self.child.stdin.close()  # it exits at the end of its input
        try:
            self.child.wait(5)
        except subprocess.TimeoutExpired:
            self.child.kill()
            self.child.wait()


class Peer:
    """The process being measured; it can be paused."""

    def __init__(self, process):
        self.process = process
        machine.prefer(process.pid)

    def worker(self):
        """The polling thread."""
        for task in Path(f"/proc/{self.process.pid}/task").iterdir():
            if "worker" in (task / "comm").read_text():
                return task.name
        raise machine.Failed(f"no worker in {self.process.describe()}")

    def pause(self):
        self.process.send(signal.SIGSTOP)

    def resume(self):
        self.process.send(signal.SIGCONT)

    def end(self):
        self.process.stop(deadline_s=5)

    def close(self):
        self.resume()
        with contextlib.suppress(Exception):
            self.end()
        if self.process.alive():
            self.process.kill()


class Testpmd(Peer):
    def end(self):
        self.process.write_line("")  # "Press enter to exit"
        self.process.wait(deadline_s=5)


class Forwarder(Peer):
    """steelyard-forwarder with one worker and FNAT services for the generator's traffic."""

    def __init__(self, process, socket):
        super().__init__(process)
        self.socket = socket

    def configure(self, plan):
        changes = []
        for family in ("4", "6"):
            at = plan[family]
            for address in row(at["locals"], plan["local_count"]):
                changes.append(pb.Change(put_local_address=pb.LocalAddress(address=address)))
            for protocol, port, timeouts in (
                (pb.PROTOCOL_UDP, plan["known"], {"udp_one_way_s": KEPT_S, "udp_s": KEPT_S}),
                (pb.PROTOCOL_UDP, plan["fresh"], {"udp_one_way_s": FORGOTTEN_S}),
                (pb.PROTOCOL_TCP, plan["connections"], {"time_wait_s": TIME_WAIT_S}),
            ):
                (vip,) = row(at["vip"], 1)
                key = pb.ServiceKey(protocol=protocol, vip=vip, port=port)
                service = pb.Service(
                    key=key,
                    name="bench",
                    mode=pb.MODE_FNAT,
                    scheduler=pb.SCHEDULER_RR,
                    timeouts=pb.Timeouts(**timeouts),
                )
                changes.append(pb.Change(put_service=service))
                for address in row(at["servers"], plan["server_count"]):
                    server = pb.Server(
                        address=address, port=plan["server"], weight=1, state=pb.SERVER_STATE_UP
                    )
                    of = pb.Change.ServerOf(service=key, server=server)
                    changes.append(pb.Change(put_server=of))
        answer = self.ask(apply=pb.ApplyRequest(changes=changes, commit=True))
        if answer.HasField("error"):
            raise machine.Failed(f"the forwarder refused its configuration: {answer.error.text}")

    def ask(self, **body):
        with Control(self.socket) as control:
            return control.ask(**body)

    def cycles(self):
        """Busy and idle cycles of its worker."""
        worker = self.ask(list_workers=pb.ListWorkersRequest()).list_workers.workers[0]
        return worker.busy_cycles, worker.idle_cycles

    def link_is_up(self):
        return self.ask(list_ports=pb.ListPortsRequest()).list_ports.ports[0].up

    def wait_up(self):
        """It checks its link periodically, and drops packets for a link that is down."""
        wait_until(self.link_is_up, "the forwarder's link is up")

    def drops(self):
        """{"tx-full": 3, …}, with the reasons that occurred."""
        drops = self.ask(list_drops=pb.ListDropsRequest()).list_drops.drops
        return {drop.name: drop.packets for drop in drops if drop.packets}


def row(first, count):
    """This many addresses from the first one up, packed."""
    start = ipaddress.ip_address(first)
    return [(start + i).packed for i in range(count)]


class Testbed:
    """All processes; a context manager that cleans up completely."""

    def __init__(self):
        if os.geteuid():
            raise machine.Failed("network namespaces and huge pages want root")
        cores = machine.cpus()
        if len(cores) < 2:
            raise machine.Failed("this takes two cores")
        if not shutil.which(TESTPMD):
            raise machine.Failed("there is no dpdk-testpmd; `make setup` installs it")
        self.near, self.far = cores[:2]
        self.open = contextlib.ExitStack()  # closed last: servers leave before their client
        self.peers = contextlib.ExitStack()

    def __enter__(self):
        reap.reap_dead()
        self.dir = self.open.enter_context(machine.folder("bench"))
        self.id = self.dir.name
        return self

    def __exit__(self, *_):
        # The caller that waits for its end must not be interrupted halfway.
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            self.peers.close()
        finally:
            self.open.close()
            signal.signal(signal.SIGINT, before)

    def namespace(self, name):
        return Namespace(f"{self.id}-{name}").create()

    def keep(self, peer):
        self.peers.callback(peer.close)
        return peer

    def memif(self, name, role, more=""):
        """Devargs of one end."""
        return f"net_memif0,role={role},socket={self.dir / name}.sock,socket-abstract=no{more}"

    def plan(self):
        """The addresses and ports of the traffic."""
        return json.loads(subprocess.check_output([GENERATOR, "--plan"]))

    def generator(self, name, peer):
        """A generator with a link to an existing peer, and one to no peer, which takes
        and gives any frame. It sleeps while another generator is used."""
        links = {
            name: self.memif(name, "client", ",zero-copy=yes"),
            "null": f"net_null0,size={NULL_FRAME}",
        }
        generator = Generator(self.near, links, self.dir / f"generator-{name}.log")
        self.open.callback(generator.close)
        generator.ask("up", link=name, watch=peer.worker())
        return generator

    def forwarder(self, plan, sessions):
        ns = self.namespace("forwarder")
        port, socket = "net_memif0", self.dir / "control.sock"
        device = self.memif("forwarder", "server").replace(",", ";")
        place = ["--instance", self.id, "--socket", socket, "--state", self.dir / "state"]
        argv = [FORWARDER, *place, "--cores", self.far, "--sessions", sessions]
        argv += ["--memory", FORWARDER_MB, "--log", "warn"]
        argv += ["--port", f"{port},backend=ethdev,mac={plan['forwarder_mac']},dev={device}"]
        for prefix, gate, side in (
            ("100.64.0.0/10", "10.9.0.1", "client"),
            ("10.1.0.0/16", "10.9.0.2", "server"),
            ("2001:db8:c::/64", "fd00:9::1", "client"),
            ("fd00:1::/64", "fd00:9::2", "server"),
        ):
            argv += ["--route", f"{prefix},port={port},via={gate}"]
            argv += ["--neighbour", f"{gate},port={port},mac={plan[f'{side}_mac']}"]
        reap.note_cleanup(self.dir, "forwarder", [FORWARDER, *place, "--cleanup"])
        log = self.dir / "forwarder.log"
        process = Process("steelyard-forwarder", machine.ahead(ns.command(argv)), log)
        peer = self.keep(Forwarder(process, socket))
        wait_until(lambda: socket.exists() or not process.alive(), "the forwarder's socket", 60)
        if not process.alive():
            raise machine.Failed(process.describe())
        peer.configure(plan)
        return peer

    def testpmd(self):
        device = self.memif("testpmd", "server")
        argv = ["stdbuf", "-oL", TESTPMD, "-m", TESTPMD_MB]
        argv += ["--lcores", f"0@{self.near},1@{self.far}"]
        argv += ["--in-memory", "--no-pci", "--no-telemetry", "--iova-mode=va"]
        argv += ["--file-prefix", f"{self.id}-testpmd", "--vdev", device, "--"]
        argv += ["--forward-mode=macswap", "--burst=64", "--no-lsc-interrupt"]
        argv += ["--disable-link-check", "--total-num-mbufs=16384", "--no-mlockall"]
        process = Process("testpmd", machine.ahead(argv), self.dir / "testpmd.log", commanded=True)
        peer = self.keep(Testpmd(process))
        process.wait_for("Press enter to exit")
        return peer


def busy_share(forwarder, work, seconds):
    """The result of work(), and the share of `seconds` in which the worker was busy."""
    busy, idle = forwarder.cycles()
    start = time.monotonic()
    result = work()
    passed = time.monotonic() - start
    busy_after, idle_after = forwarder.cycles()
    total = busy_after - busy + idle_after - idle
    share = (busy_after - busy) / total * passed / seconds if total else 0
    return result, min(share, 1)
