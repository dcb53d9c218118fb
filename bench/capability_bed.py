# SPDX-License-Identifier: Apache-2.0
"""Ten servers behind five links, and 60 TCP flows through a forwarder: the experiment of the
paper on HVLB, a load balancer for NFV.

    client ── forwarder ── switch ─┬─ link 1: 2.2 ms, 600 Mbit/s ── two servers
                                   ┆
                                   └─ link 5 ──────────────────────── two servers

Scaled to two cores: all times are SLOWER times as long and all rates so many times less, so that a
link holds as many packets as it would. Each server has a control group of its own with a quota of
processor time, takes some of it for each block, and says how much of the quota is used.

A flow sends a block every 1/RATE s, but keeps at most WINDOW blocks under way, such that rr is
disturbed as much as in the paper; after BLOCKS it goes on with a new connection. The time from a
block to its confirmation is its round-trip time, with the server's work. A late link alone does not
slow a flow down, a server without processor time does.
"""

import collections
import contextlib
import errno
import os
import selectors
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from bench import machine
from tests.lab import Lab, Server, Service
from tests.lab.config import Config
from tests.lab.link import Link
from tests.lab.steelyard import VIP, Steelyard, local_addresses

SLOWER = 40
LINKS, EACH, FLOWS = 5, 2, 60
DELAY_MS, MORE_MS, RATE_MBIT = 2.2 * SLOWER, 5 * SLOWER, 600 / SLOWER
LATE, LOADED = (2, 4), (3, 5)  # links with more delay; hosts whose servers do other work
OTHER_WORK, OTHERS = 0.8, 4  # of the quota, and by how many programs
BLOCK, WINDOW, BLOCKS, RATE = 4096, 11, 42, 21
AHEAD = 8  # blocks before a connection's end, the flow makes the next one
CPU_NS = 60_000  # a server's work on a block, besides reading it
QUOTA_US, PERIOD_US = 1000, 40_000
PORT, FIRST = 80, 8001
PROGRAM = machine.ROOT / "bench/capability_server.py"
CPU = Path("/sys/fs/cgroup/cpu")
SETTLE = "6s"

FEEDBACK = {
    "feedback": {"settle": SETTLE, "link_capacity": f"{RATE_MBIT:g}M"},
    "load": {"type": "orca", "interval": "1s", "timeout": "900ms"},
}
# A check is answered as a block is, after those that wait before it.
RESPONSE = {"type": "http", "interval": "2s", "timeout": "2s", "fall": 100}
# By name: the scheduler, and what its service has besides.
POLICIES = {
    "rr": ("rr", {}),
    "maglev": ("maglev", {"hash_on": "tuple"}),
    "capability": ("share", FEEDBACK),
    "p2c": ("p2c", {}),
    "least latency": (
        "share",
        FEEDBACK | {"feedback": FEEDBACK["feedback"] | {"policy": "latency"}, "health": RESPONSE},
    ),
    "capability, wlc": ("wlc", FEEDBACK),
}


@dataclass
class Function(Server):
    """A server behind a link, with a report of its load."""

    link: str = ""
    asked: bool = False  # for its load

    def value(self):
        load = {"load": {"port": self.port + 1000}} if self.asked else {}
        link = {"link": self.link} if self.link else {}
        return super().value() | link | load


class Group:
    """A control group with a quota; removed at the end."""

    def __init__(self, name):
        self.path = CPU / name
        self.usage = Path("/sys/fs/cgroup/cpuacct", name)

    def __enter__(self):
        for path in (self.path, self.usage):
            path.mkdir(exist_ok=True)
        (self.path / "cpu.cfs_period_us").write_text(str(PERIOD_US))
        (self.path / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        return self

    def __exit__(self, *_):
        for path in (self.path, self.usage):
            with contextlib.suppress(OSError):
                path.rmdir()

    def command(self, cpu, *words):
        """The command that runs a program inside, on one processor: the kernel hands quotas out
        to processors in pieces that are larger than ours."""
        return ["taskset", "-c", cpu, sys.executable, PROGRAM, *words]


class Bed:
    """A context manager that cleans up completely."""

    def __init__(self):
        self.open = contextlib.ExitStack()
        self.links, self.groups, self.others = {}, {}, []

    def __enter__(self):
        if not (CPU / "cpu.cfs_quota_us").exists():
            raise machine.Failed("this takes the cgroup controller cpu (version 1)")
        try:
            machine.prefer(os.getpid())
            self.lab = self.open.enter_context(Lab(servers=LINKS))
            for host in range(1, LINKS + 1):
                one = Link(self.lab, f"s{host}", delay_ms=DELAY_MS / 2, rate_mbit=RATE_MBIT)
                self.links[host] = self.open.enter_context(one)
                for number in range(EACH):
                    self.serve(host, FIRST + number)
            self.steelyard = Steelyard(self.lab, Config(local_addresses(1))).start()
        except BaseException:
            self.open.close()
            raise
        return self

    def __exit__(self, *error):
        return self.open.__exit__(*error)

    @staticmethod
    def cpu(host):
        cpus = machine.cpus()
        return cpus[host % len(cpus)]

    def serve(self, host, port):
        name = f"{self.lab.id}-{host}-{port}"
        group = self.open.enter_context(Group(name))
        self.groups[host, port] = group
        address = self.lab[f"s{host}"].v4
        words = group.command(self.cpu(host), "server", address, port, group.path, BLOCK, CPU_NS)
        program = self.lab.start(f"s{host}", f"function-{host}-{port}", words)
        self.open.callback(program.stop)
        program.wait_for("ready")

    def use(self, policy):
        """All flows of before have ended: the service begins anew."""
        scheduler, spread = POLICIES[policy]
        servers = [
            Function(
                self.lab[f"s{host}"].v4,
                port,
                link=f"link{host}" if "feedback" in spread else "",
                asked="load" in spread,
            )
            for host, port in self.groups
        ]
        config = self.steelyard.config
        config.services.clear()
        self.steelyard.apply()
        spread = {"syn_defence": "off", **spread}
        service = Service("nf", VIP[4], PORT, scheduler=scheduler, spread=spread, servers=servers)
        service.health = service.spread.pop("health", service.health)
        service.timeouts = {"closing": "1s", "time_wait": "1s"}  # p2c counts live sessions
        config.services.append(service)
        self.steelyard.apply()
        self.steelyard.wait_in_sync()

    def disturb(self):
        """More delay on two links, and other work in two hosts' groups."""
        for host in LATE:
            self.links[host].set(delay_ms=(DELAY_MS + MORE_MS) / 2)
        for host in LOADED:
            for number in range(EACH):
                group = self.groups[host, FIRST + number]
                words = group.command(
                    self.cpu(host), "load", group.path, OTHER_WORK / OTHERS, QUOTA_US / PERIOD_US
                )
                for one in range(OTHERS):
                    name = f"load-{host}-{number}-{one}"
                    self.others.append(self.lab.start(f"s{host}", name, words))

    def calm(self):
        for link in self.links.values():
            link.set(delay_ms=DELAY_MS / 2)
        for other in self.others:
            other.stop()
        self.others.clear()

    def used(self):
        """Processor time that each host's groups have used, as a part of a second of their
        quotas."""
        used = collections.Counter()
        for (host, _), group in self.groups.items():
            used[host] += int((group.usage / "cpuacct.usage").read_text())
        quota = EACH * QUOTA_US / PERIOD_US * 1e9
        return {host: time / quota for host, time in used.items()}

    def shares(self):
        """What the forwarder follows, by host; 0: weights."""
        shares = dict.fromkeys(range(1, LINKS + 1), 0.0)
        for server in self.steelyard.get("servers"):
            host = next(h for h in shares if self.lab[f"s{h}"].v4 == server["address"])
            shares[host] += server.get("share", {}).get("share", 0)
        return shares


class Connection:
    def __init__(self, flow, blocks):
        self.flow, self.blocks = flow, blocks
        self.socket = flow.flows.host.ns.socket()
        self.socket.setblocking(False)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        failed = self.socket.connect_ex((VIP[4], PORT))
        if failed != errno.EINPROGRESS:
            raise machine.Failed(f"a flow cannot begin: {errno.errorcode[failed]}")
        self.sent, self.under_way = 0, collections.deque()
        self.open = False
        self.chooser = flow.flows.chooser
        self.chooser.register(self.socket, selectors.EVENT_WRITE, self)

    def ready(self, events):
        if events & selectors.EVENT_WRITE:
            if self.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                return self.flow.failed(self)
            self.chooser.modify(self.socket, selectors.EVENT_READ, self)
            self.open = True
            return None
        try:
            answers = len(self.socket.recv(4096))
        except OSError:
            answers = 0
        if answers == 0:
            return self.flow.failed(self)
        now = time.monotonic()
        for _ in range(answers):
            self.flow.flows.done.append((now, now - self.under_way.popleft()))
        if not self.under_way and self.sent == self.blocks:
            self.flow.ended(self)
        return None

    def close(self):
        self.chooser.unregister(self.socket)
        self.socket.close()


class Flow:
    """Sends by one connection at a time. The next one is open by then: at the scale of the paper
    the handshake takes a thousandth of a connection's time, here it would take a tenth."""

    def __init__(self, flows, first):
        self.flows, self.due = flows, 0.0
        self.all = [Connection(self, first)]  # the last ones may wait for their turn

    def send(self, now):
        """Sends a block if one is due."""
        one = next((c for c in self.all if c.sent < c.blocks), None)
        if one is None or not one.open or now < self.due:
            return
        if sum(len(c.under_way) for c in self.all) == WINDOW:
            return
        one.socket.sendall(self.flows.block)
        one.under_way.append(now)
        one.sent += 1
        self.due = max(self.due, now - 1 / RATE) + 1 / RATE
        if one.blocks - one.sent < AHEAD and one is self.all[-1]:
            self.all.append(Connection(self, BLOCKS))

    def ended(self, one):
        one.close()
        self.all.remove(one)

    def failed(self, one):
        self.flows.failed += 1
        self.ended(one)
        if not any(c.sent < c.blocks for c in self.all):
            self.all.append(Connection(self, BLOCKS))

    def end(self):
        for one in self.all:
            one.close()


class Flows:
    """A context manager: 60 flows, driven by run()."""

    def __init__(self, host):
        self.host, self.chooser = host, selectors.DefaultSelector()
        self.block = bytes(BLOCK)
        self.done, self.failed = [], 0  # (when, round-trip time) of each block

    def __enter__(self):
        # They make their connections one after the other, not all in the same moment.
        self.all = [Flow(self, 1 + BLOCKS * (i + 1) // FLOWS) for i in range(FLOWS)]
        return self

    def __exit__(self, *_):
        for flow in self.all:
            flow.end()

    def run(self, seconds):
        """Returns the blocks that were confirmed meanwhile."""
        first, end = len(self.done), time.monotonic() + seconds
        while time.monotonic() < end:
            for key, events in self.chooser.select(0.003):
                key.data.ready(events)
            now = time.monotonic()
            for flow in self.all:
                flow.send(now)
        return self.done[first:]
