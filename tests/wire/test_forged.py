# SPDX-License-Identifier: Apache-2.0
"""Forged segments against kernels' TCP connections in every mode: no connection ends or moves to
another server, and no byte is lost or added.

The attacker knows addresses and ports but no sequence numbers: it draws them at random or scans
windows in order. balance-forged sends millions of such packets, with small steps."""

import contextlib
import copy
import itertools
import os
import socket

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import abort, receive_exactly
from tests.lab.flood import finish_flood, start_flood
from tests.lab.mode_table import OUTWARD, ROWS
from tests.lab.servers import EchoServer
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage

ECHO = 9600
KINDS = "rst,fin,syn,syn-ack,ack,data"
# Slow enough for a sanitized forwarder to receive most of it.
RATE, PACKETS, PACKETS_OF_ONE = 40_000, 80_000, 20_000
ALIVE = ("established", "fin-wait", "closing")
PIECE = 20_000
ports = itertools.count(20_000)
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
# bad-tcp-state: SYN-ACKs of clients, SYNs of servers. no-session: packets after the end.
DROPS = pytest.mark.drops(
    *("bad-tcp-state", "reset-rate", "syn-proof", "opening", "no-session", "too-big"),
    "steering-full",
)


class ForgedStage(ModeStage):
    """Each server and `far` echo; there is a service of every mode."""

    def start(self):
        super().start()
        hosts = [*self.lab.servers(), self.lab["far"]]
        for host in hosts:
            self.echo[host.name] = EchoServer(host, ECHO, 6, "::")
        network = self.lab.network
        self.default = copy.deepcopy(self.config)
        for row in ROWS:
            servers = [Server(host.address(row.server), ECHO) for host in network.server_hosts()]
            self.default.services.append(
                Service(f"echo-{row}", row.vip, ECHO, mode=row.mode, servers=servers)
            )
        self.restore()

    def defend(self, setting):
        for service in self.config.services:
            if service.name.startswith("echo-"):
                service.spread["syn_defence"] = setting
        self.apply()
        self.steelyard.wait_in_sync()


class Talk:
    """A connection, through the forwarder, to an echo server."""

    def __init__(self, stage, row, port):
        self.stage, self.row = stage, row
        inside = row in OUTWARD
        host = stage.lab["s1" if inside else "far"]
        self.vip = stage.lab["far"].address(row.client) if inside else row.vip
        self.source = host.address(row.client), port
        kind = socket.AF_INET if row.client == 4 else socket.AF_INET6
        self.socket = host.ns.socket(kind)
        self.socket.settimeout(60)
        # Connections to several VIPs from one port: one flood reaches all of them.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(("", port))
        self.socket.connect((self.vip, ECHO))
        self.exchange()
        self.begun = self.session()

    def session(self):
        words = () if self.row in OUTWARD else ("--service", f"echo-{self.row}")
        found = [
            session
            for session in self.stage.steelyard.sessions(*words)
            if (session["client"], session["client_port"]) == self.source
            and (session["vip"], session["vip_port"]) == (self.vip, ECHO)
        ]
        assert len(found) == 1, f"{self.row}: {found}"
        return found[0]

    def exchange(self):
        """Echoes bytes: a forged or lost byte would change the echo."""
        piece = os.urandom(PIECE)
        self.socket.sendall(piece)
        assert receive_exactly(self.socket, PIECE) == piece, f"{self.row}: other bytes came back"

    def is_same(self):
        now = self.session()
        for field in ("server", "server_port", "local", "local_port"):
            assert now.get(field) == self.begun.get(field), f"{self.row}: {field} changed"
        return now["state"] in ALIVE

    def behind(self):
        """Returns the server's address and port, and those it sees; None where its packets bypass
        the forwarder."""
        begun, mode = self.begun, self.row.mode
        if mode == "snat":
            return (self.vip, ECHO), (begun["local"], begun["local_port"])
        server = begun["server"], begun["server_port"]
        if mode == "fnat":
            return server, (begun["local"], begun["local_port"])
        return (server, self.source) if mode == "nat" else None


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def forged_stage(request):
    with ForgedStage(arms=1, workers=request.param, queues=request.param) as stage:
        yield stage


@pytest.fixture
def forged(forged_stage, request):
    yield from check_accounting(forged_stage, request)


@contextlib.contextmanager
def talking(stage, rows):
    port = next(ports)
    with contextlib.ExitStack() as stack:
        talks = []
        for row in rows:
            talks.append(Talk(stage, row, port))
            stack.callback(abort, talks[-1].socket)
        yield talks


def forge(stage, talks, source, to, port, packets, *how):
    """Sends segments with source `source` while every connection carries data, and afterwards."""
    options = ["--tuple", f"{source[0]},{source[1]}", "--packets", packets, *how]
    flood = start_flood(stage.lab, KINDS, to, str(port), rate=RATE, options=options)
    while flood.alive():
        for talk in talks:
            talk.exchange()
    assert finish_flood(flood, wait=True)["sent"] == packets
    for talk in talks:
        talk.exchange()
        wait_until(talk.is_same, f"the session of {talk.row} is alive")


def steps(packets):
    """Scans all sequence numbers in order."""
    return "--scan", (1 << 32) // packets


@DROPS
@families
@pytest.mark.parametrize("setting", ("off", "always"))
def test_segments_forged_as_clients_change_nothing(forged, family, setting):
    """SNAT trusts inside hosts: the next test covers their remotes."""
    forged.defend(setting)
    rows = [row for row in ROWS if row.client == family]
    with talking(forged, rows) as talks:
        vips = [row.vip for row in rows]
        for how in ((), steps(PACKETS)):
            forge(forged, talks, talks[0].source, vips, ECHO, PACKETS, *how)


@DROPS
@pytest.mark.parametrize("setting", ("off", "always"))
def test_segments_forged_as_servers_change_nothing(forged, setting):
    """One server after the other, because each has its own address and port. SNAT has no SYN
    defence, so one setting suffices for it."""
    forged.defend(setting)
    rows = [row for row in ROWS if row.mode in ("fnat", "nat")]
    rows += OUTWARD if setting == "off" else ()
    with talking(forged, rows) as talks:
        for talk in talks:
            source, (to, port) = talk.behind()
            for how in ((), steps(PACKETS_OF_ONE)):
                forge(forged, [talk], source, to, port, PACKETS_OF_ONE, *how)
