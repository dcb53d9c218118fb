# SPDX-License-Identifier: Apache-2.0
"""How long clients hear nothing while the forwarder is killed, restarted or upgraded, and what the
time goes to.

A lab of network namespaces on veth (tests/lab), UDP flows that ask an echo server every few
milliseconds, and beside them the conversations of tests/traffic. `silence` is the longest time
between two answers of any of the flows; the phases are those that `steelyard get status` shows,
wall time. In the evidence: `cpu_ms` of it that the process computed, `queued_ms` that its
control thread waited for a CPU; the rest it waited for the kernel. So what a busy machine adds
can be distinguished from what the forwarder takes.
"""

import selectors
import signal
import socket
import threading
import time

from bench import machine
from tests.lab import Lab, Server, Service
from tests.lab.servers import start_dns, start_nginx
from tests.lab.steelyard import VIP, Steelyard, web_and_dns
from tests.lab.traffic import Traffic

TITLE = "how long clients hear nothing during restarts and upgrades, and where the time goes"
MINUTES = 4
PORT, SERVER_PORT = 7, 9007
PERIOD_S = 0.002
FLOWS = 2  # of each family
WAYS = ("upgrade", "restart", "kill -9")
HTTP, DOWNLOADS, UDP = 50, 10, 50
MEMORY = 1 << 30  # two forwarders during an upgrade, servers and clients
CONTENT_MB = 24  # of a download: at 16 KB/s it lasts for all of the runs
SHOWN_NS = 100_000  # phases below are left out


def rows(quick):
    if not machine.memory_suffices(MEMORY):
        print(f"   restarts and upgrades: left out, {machine.lacking(MEMORY)}")
        return
    yield from measure(5 if quick else 20, WAYS, traffic=True)


def smoke():
    yield from measure(1, ("upgrade",), traffic=False)


class Probe(threading.Thread):
    """Asks on several flows all the time; knows the longest time without an answer on one of
    them."""

    def __init__(self, lab):
        super().__init__(daemon=True)
        self.flows = []
        for family, kind in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            for _ in range(FLOWS):
                one = lab["client"].ns.socket(kind, socket.SOCK_DGRAM)
                one.connect((VIP[family], PORT))
                one.setblocking(False)
                self.flows.append(one)
        self.lock = threading.Lock()
        self.last = dict.fromkeys(self.flows, time.monotonic())
        self.longest, self.answers, self.stopping = 0.0, 0, False

    def run(self):
        with selectors.DefaultSelector() as ready:
            for one in self.flows:
                ready.register(one, selectors.EVENT_READ)
            due = time.monotonic()
            while not self.stopping:
                now = time.monotonic()
                if now >= due:
                    due = max(due + PERIOD_S, now)
                    self.ask()
                for key, _ in ready.select(max(0, due - time.monotonic())):
                    self.hear(key.fileobj)

    def ask(self):
        for one in self.flows:
            try:
                one.send(b"?")
            except OSError:  # no answer is an answer, too
                continue

    def hear(self, one):
        try:
            while one.recv(16):
                self.note(one)
        except OSError:
            return

    def note(self, one):
        now = time.monotonic()
        with self.lock:
            self.longest = max(self.longest, now - self.last[one])
            self.last[one] = now
            self.answers += 1

    def begin(self):
        with self.lock:
            self.longest = 0.0

    def end(self):
        """The longest silence since begin(), in seconds, once each flow was answered again."""
        asked = time.monotonic()
        while min(self.last.values()) <= asked:
            time.sleep(PERIOD_S)
        with self.lock:
            return self.longest

    def close(self):
        self.stopping = True
        self.join()
        for one in self.flows:
            one.close()


class Echo(threading.Thread):
    """Sends back each datagram."""

    def __init__(self, host, family):
        super().__init__(daemon=True)
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.socket = host.ns.socket(kind, socket.SOCK_DGRAM)
        self.socket.bind((host.address(family), SERVER_PORT))
        self.socket.settimeout(0.2)
        self.stopping = False
        self.start()

    def run(self):
        while not self.stopping:
            try:
                data, peer = self.socket.recvfrom(64)
                self.socket.sendto(data, peer)
            except OSError:
                continue
        self.socket.close()

    def close(self):
        self.stopping = True
        self.join()


def testbed(lab):
    """Servers, echo services among them, and a forwarder with its agent."""
    for host in lab.servers():
        start_nginx(lab, host.name)
        start_dns(lab, host.name)
    config = web_and_dns(lab.network, checked=False)
    echoes = []
    for family in (4, 6):
        echoes.append(Echo(lab["s1"], family))
        servers = [Server(lab["s1"].address(family), SERVER_PORT)]
        config.services.append(Service(f"echo{family}", VIP[family], PORT, "udp", servers=servers))
    steelyard = Steelyard(lab, config)
    steelyard.start()
    return steelyard, echoes


def replace(steelyard, way):
    """What the command said, if it says something."""
    if way == "upgrade":
        return steelyard.upgrade()
    steelyard.restart_forwarder(signal.SIGKILL if way == "kill -9" else signal.SIGTERM)
    return None


def measure(count, ways, traffic):
    with Lab() as lab:
        steelyard, echoes = testbed(lab)
        probe, load = Probe(lab), Traffic(lab, HTTP, DOWNLOADS, UDP, CONTENT_MB)
        probe.start()
        if traffic:
            load.provide()
            load.start("-period", "100ms")
        try:
            for _ in range(count):
                for way in ways:
                    yield from one(steelyard, probe, load if traffic else None, way)
        finally:
            probe.close()
            for echo in echoes:
                echo.close()


def one(steelyard, probe, load, way):
    steelyard.wait_reconnected()
    if load:
        load.step()
    probe.end()
    probe.begin()
    said = replace(steelyard, way)
    yield run(way, "silence", probe.end() * 1000)
    if said:
        yield run(way, "gap, as reported", said["gap_ns"] / 1e6)
    if load:
        report = load.step()
        assert not report["failures"], report["examples"]
        yield run(way, "longest wait by HTTP", report["flows"]["http"]["stall_ms"])
    steelyard.wait_reconnected()
    phases = steelyard.get("status")["forwarder"]["phases"]
    yield run(way, "queued", sum(phase["queued_ns"] for phase in phases) / 1e6)
    for phase in phases:
        if phase["wall_ns"] < SHOWN_NS or phase["cpu_ns"] == 0:
            continue
        evidence = {"queued_ms": phase["queued_ns"] / 1e6, "faults": phase["faults"]}
        computing = {"name": "computing", "value": phase["cpu_ns"] / 1e6}
        value = phase["wall_ns"] / 1e6
        yield run(way, f"phase {phase['name']}", value, baseline=computing, evidence=evidence)


def run(way, metric, value, **more):
    made = {"bench": "restart", "params": {"way": way}, "metric": metric, "unit": "ms"}
    return made | {"value": value} | more
