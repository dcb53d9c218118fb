# SPDX-License-Identifier: Apache-2.0
"""Programs on the user-space stack: `steelyard run` on a host of the lab, and a peer that follows
orders."""

import contextlib
import ctypes
import errno
import socket
import struct
import threading
from pathlib import Path

from tests.lab.run_build import steelyard_run

PORT = 9000
MESSAGE_VERSION = 10  # version of requests to the parent: dataplane/preload/message.h
SO_ATTACH_FILTER = 26


def nginx_text(inside, workers=1, connections=4096, files=None, log="access_log off;"):
    """Returns an nginx configuration template for `run`: `inside` is the content of its http block,
    {dir} its folder. `connections` are per worker, `files` are its descriptors (None: the lab's
    limit)."""
    limit = f"worker_rlimit_nofile {files};" if files else ""
    return f"""\
worker_processes {workers};
{limit}
daemon off;
user www-data;
pid {{dir}}/pid;
error_log stderr notice;
events {{{{ worker_connections {connections}; }}}}
http {{{{
    {log}
    keepalive_requests 100000000;
{inside.rstrip()}
}}}}
"""


def start_run(lab, name, argv, *options, host="forwarder", interface="front", workers=1):
    """Starts a program on the stack."""
    return lab.start(
        host, f"run-{name}", run_command(argv, *options, interface=interface, workers=workers)
    )


def run_command(argv, *options, interface="front", workers=1):
    head = [steelyard_run(), "run", "--log", "info", "--interface", interface, "--workers", workers]
    return [*map(str, head), *map(str, options), "--", *map(str, argv)]


def kernel_connections(host):
    """Returns how many TCP connections Linux has opened and accepted in a host's namespace."""
    with host.ns.entered():
        lines = Path("/proc/thread-self/net/snmp").read_text().splitlines()
    names, values = (line.split() for line in lines if line.startswith("Tcp:"))
    count = dict(zip(names, values, strict=True))
    return int(count["ActiveOpens"]) + int(count["PassiveOpens"])


class Puppet:
    """A peer on Linux's sockets. The first line of each connection is its order."""

    def __init__(self, host, address):
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self.host = host
        self.held = []
        self.listener = host.ns.socket(family)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind((address, PORT))
        self.listener.listen(64)
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        for one in self.held:
            one.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                one = self.listener.accept()[0]
                threading.Thread(target=self._obey, args=(one,), daemon=True).start()

    def _obey(self, one):
        """A failing order closes the connection."""
        try:
            order = b""
            while not order.endswith(b"\n"):
                byte = one.recv(1)
                if not byte:
                    return
                order += byte
            name, *words = order.decode().strip().replace("two parts", "two_parts").split()
            getattr(self, name)(one, *words)
        except OSError:
            one.close()

    def hold(self, one):
        self.held.append(one)

    def say(self, one):
        one.sendall(b"hello")
        self.held.append(one)

    def finish(self, one):
        """Closes its sending side, and stops reading."""
        one.shutdown(socket.SHUT_WR)
        self.held.append(one)

    def farewell(self, one):
        one.sendall(b"hello")
        self.finish(one)

    def two_parts(self, one):
        """The second part follows the peer's acknowledgement of the first."""
        one.sendall(b"first")
        one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        one.sendall(b"one, ")
        one.sendall(b"two.")
        one.close()

    def deaf(self, one):
        """Drops all further packets, so it acknowledges nothing."""
        nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # ret #0
        program = struct.pack("HP", 1, ctypes.addressof(nothing))
        one.setsockopt(socket.SOL_SOCKET, SO_ATTACH_FILTER, program)
        one.sendall(b"d")
        self.held.append(one)

    def mss(self, one):
        """Limits the MSS of its segments to the other end."""
        one.sendall(str(one.getsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG)).encode())
        one.close()

    def urgent(self, one):
        one.sendall(b"ab")
        one.send(b"c", socket.MSG_OOB)
        one.sendall(b"d")
        self.held.append(one)

    def echo(self, one):
        while part := one.recv(65536):
            one.sendall(part)
        one.close()

    def reset(self, one):
        one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        one.close()

    def refuse(self, one):
        """Answers, then resets the connection."""
        one.sendall(b"413 too large")
        self.reset(one)

    def call(self, one, address, port):
        with self.host.ns.socket(one.family) as other:
            other.connect((address, int(port)))
            other.sendall(b"a call")
            other.sendall(other.recv(6, socket.MSG_WAITALL)[::-1])
        self.held.append(one)

    def _twice(self, one):
        """Reports that something is done, and repeats it after an answer."""
        one.sendall(b"1")
        one.recv(1)
        one.sendall(b"2")
        self.held.append(one)

    def visit(self, one, address, port):
        """Opens a connection and keeps it."""
        other = self.host.ns.socket(one.family)
        self.held.append(other)
        other.connect((address, int(port)))
        self._twice(one)

    def strike(self, one, address, port):
        """Opens a connection and resets it."""
        other = self.host.ns.socket(one.family)
        other.connect((address, int(port)))
        self.reset(other)
        self._twice(one)

    def knock(self, one, address, port):
        """Reports whether a connection attempt succeeds."""
        with self.host.ns.socket(one.family) as other:
            code = other.connect_ex((address, int(port)))
        one.sendall(errno.errorcode[code].encode() if code else b"open")
        self.held.append(one)
