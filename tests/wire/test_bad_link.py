# SPDX-License-Identifier: Apache-2.0
"""Clients behind a bad link: TCP delivers every byte, and the forwarder loses no packet that the
link delivers.

One-armed, every mode at once. The link is the cable of `far`, behind the router: ab leads to the
forwarder; ba carries answers, including those that bypass the forwarder."""

import copy
import hashlib
import os
import socket
import struct
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import connect
from tests.lab.datagrams import SO_RCVBUFFORCE
from tests.lab.link import Link, balance
from tests.lab.mode_table import ROWS, VIP_ON_SERVERS
from tests.lab.servers import DatagramEcho, EchoServer
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage
from tests.wire.stage import Accounting

rows = pytest.mark.parametrize("row", ROWS, ids=str)
# Features of the client's service; where one is impossible, a row has the others.
KINDS = {
    "plain": {},
    "defended": {"syn_defence": "always"},
    "proxy": {"client_address": "proxy_v1"},
    "toa": {"client_address": "toa"},
}
PORT = {kind: 9701 + number for number, kind in enumerate(KINDS)}
DATAGRAMS = 9751  # first port; one per row
CELLS = [
    (row, kind)
    for row in ROWS
    for kind in KINDS
    if row.mode == "fnat" or kind in ("plain", "defended")
]
BAD = {"delay_us": 500, "jitter_us": 500, "loss": 0.01, "duplicate": 0.01}
BAD |= {"reorder": 0.03, "reorder_distance": 3}
SIZE, CONNECTIONS = 500_000, 4
# A late or duplicate SYN, ACK or FIN may belong to no session or to a closing one.
LATE = ("no-session", "opening", "bad-cookie", "nat-stray", "bad-tcp-state", "syn-proof")
# Packets of the client's own MTU exceed the tunnel's until the client learns its MTU.
TUNNEL = "too-big"


class BadLinkStage(ModeStage):
    """ModeStage with TCP and UDP echoes of each mode on s1."""

    def start(self):
        super().start()
        server = self.lab["s1"]
        for kind, port in PORT.items():
            self.echo[kind] = EchoServer(server, port, 6, "::")  # IPv4 as well
        for row, kind in CELLS:
            target = [Server(server.address(row.server), PORT[kind])]
            self.add(f"{kind}-{row}", row, PORT[kind], "tcp", target, dict(KINDS[kind]))
        for number, row in enumerate(ROWS):
            port = DATAGRAMS + number
            own = row.mode in VIP_ON_SERVERS
            family, address = (row.client, row.vip) if own else (row.server, None)
            self.echo[port] = DatagramEcho(server, port, family, address)
            self.add(
                f"datagrams-{row}", row, port, "udp", [Server(server.address(row.server), port)]
            )
        self.apply()
        self.steelyard.wait_in_sync()
        self.default = copy.deepcopy(self.config)

    def add(self, name, row, port, protocol, servers, spread=None):
        one = Service(name, row.vip, port, protocol, mode=row.mode, servers=servers)
        one.spread = spread or {}
        self.config.services.append(one)


@pytest.fixture(scope="module")
def bad_stage():
    with BadLinkStage(arms=1, workers=2) as stage, Link(stage.lab, "far") as stage.link:
        yield stage


@pytest.fixture
def bad(bad_stage, request):
    yield from check_accounting(bad_stage, request)
    bad_stage.link.set(defaults="")
    stats = bad_stage.link.settle()
    assert not any(balance(stats[way]) for way in ("ab", "ba")), stats


def header_length(one, row, kind):
    """Returns how many bytes of PROXY protocol the server reads first, and so echoes."""
    if kind != "proxy":
        return 0
    name, port = one.getsockname()[:2]
    line = f"PROXY TCP{row.client} {name} {row.vip} {port} {PORT[kind]}\r\n"
    return len(line)


def echoed(host, row, kind, content):
    """Sends all content while it receives the echo; returns the echo."""
    with connect(host, row.vip, PORT[kind], timeout_s=120) as one:
        skip, found = header_length(one, row, kind), b""

        def send():
            one.sendall(content)
            one.shutdown(socket.SHUT_WR)

        sender = threading.Thread(target=send)
        sender.start()
        parts = []
        while part := one.recv(1 << 18):
            parts.append(part)
        sender.join()
        found = b"".join(parts)
    return found[skip:]


def check_echoes(stage, row, kind, size=SIZE):
    content, found = os.urandom(size), {}

    def run(number):
        found[number] = hashlib.sha256(echoed(stage.lab["far"], row, kind, content)).hexdigest()

    threads = [threading.Thread(target=run, args=(n,)) for n in range(CONNECTIONS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(CONNECTIONS), hashlib.sha256(content).hexdigest())


@pytest.mark.drops(*LATE, TUNNEL)
@pytest.mark.parametrize("row,kind", CELLS, ids=lambda one: str(one))
def test_transfers_are_echoed_whole(bad, row, kind):
    """Both directions at once, over several connections."""
    bad.link.set(**BAD)
    check_echoes(bad, row, kind)


@pytest.mark.drops(*LATE)
@rows
def test_datagrams_are_answered_as_often_as_delivered(bad, row):
    """Exactly as many answers arrive as the link delivered requests, duplicates included."""
    count, far = 2000, bad.lab["far"]
    one = far.ns.socket(socket.AF_INET if row.client == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    with one:
        one.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        one.connect((row.vip, DATAGRAMS + ROWS.index(row)))
        one.settimeout(60)
        one.send(b"first")  # neighbours are resolved now
        assert one.recv(100) == b"first"
        before = bad.link.settle()
        bad.link.set(**BAD)
        for number in range(count):
            one.send(struct.pack("!I", number).ljust(500, b"."))
            if number % 100 == 99:
                bad.link.settle()  # limited by the queues, even on a slow machine
        numbers = []

        def carried():
            """Returns the number of answers that the link has delivered, once no more are
            pending."""
            stats = bad.link.settle()
            asked, answered = (count_packets(stats, before, way) for way in ("ab", "ba"))
            return answered if answered["arrived"] == asked["delivered"] else None

        answers = wait_until(carried, "every question has an answer")
        for _ in range(answers["delivered"]):
            data = one.recv(1000)
            assert data[4:] == b"." * 496
            numbers.append(struct.unpack_from("!I", data)[0])
    for way in ("ab", "ba"):
        assert bad.link.stats(way)["drops"]["loss"] > before[way]["drops"]["loss"]
        assert bad.link.stats(way)["duplicated"] > before[way]["duplicated"]
    assert set(numbers) <= set(range(count))
    assert numbers != sorted(numbers)


def count_packets(stats, before, way):
    """Packets other than neighbour discovery."""
    counts = {}
    for name in ("arrived", "delivered"):
        counts[name] = stats[way][name] - before[way][name]
        counts[name] -= stats[way]["spared"] - before[way]["spared"]
    return counts


# SYNs and FINs, too, arrive twice and out of order.
CONFUSED = {"delay_us": 300, "duplicate": 0.4, "reorder": 0.3, "reorder_distance": 1}


@pytest.mark.drops(*LATE)
@pytest.mark.parametrize("row,kind", CELLS, ids=lambda one: str(one))
def test_short_connections_are_served(bad, row, kind):
    """Each consists of a handshake, a few bytes and a close."""
    bad.link.set(**CONFUSED)
    far = bad.lab["far"]
    with ThreadPoolExecutor(20) as pool:
        contents = [os.urandom(number + 1) for number in range(100)]
        assert list(pool.map(lambda c: echoed(far, row, kind, c), contents)) == contents


@pytest.mark.drops(*LATE, TUNNEL)
@rows
def test_transfers_pass_a_narrow_router(bad, row):
    """A router at the link's other end reports that packets are too big."""
    bad.link.set(delay_us=200)
    bad.link.set("ba", mtu=1300, router4="10.9.0.77", router6="fd00:9::77")
    check_echoes(bad, row, "plain")


@pytest.mark.parametrize("row,kind", CELLS, ids=lambda one: str(one))
def test_corrupted_packets_are_not_delivered(bad_stage, row, kind):
    """The forwarder keeps invalid checksums invalid."""
    stage = bad_stage
    stage.accounting = Accounting(stage)
    before = stage.link.stats()
    stage.link.set(delay_us=200, corrupt=0.02)
    try:
        check_echoes(stage, row, kind)
    finally:
        stage.link.set(defaults="")
    stage.lab.check_programs()
    after = stage.link.stats()
    for way in ("ab", "ba"):
        assert after[way]["corrupted"] > before[way]["corrupted"]
