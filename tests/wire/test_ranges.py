# SPDX-License-Identifier: Apache-2.0
"""Services with a range of ports, or all ports, with real listeners; the narrowest service gets the
port."""

import copy
import signal

import pytest

from tests.lab import Server, Service
from tests.lab.clients import connect, receive_exactly
from tests.lab.servers import EchoServer
from tests.lab.topology import BACK, FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage
from tests.wire.test_direct import own_silently

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
VIPS = {"fnat": 90, "nat": 91, "dr": 92}
PORTS = (9300, 9301, 9310, 9320)
ONE = 9399
MODES = {
    "fnat-1-worker": ("fnat", {}),
    "nat-2-workers": ("nat", {"workers": 2}),
    "dr-1-worker": ("dr", {"arms": 1}),
    "dr-2-workers": ("dr", {"arms": 1, "workers": 2}),
}


class RangeStage(Stage):
    """s1 has all ports, s2 a range of them, s3 a narrower range within."""

    def __init__(self, kind, **options):
        super().__init__(**options)
        self.kind = kind

    def vip(self, family):
        return (v4 if family == 4 else v6)(FRONT, VIPS[self.kind])

    def start(self):
        network = self.lab.network
        forwarder = self.lab["forwarder"].ns
        if self.kind == "nat":
            forwarder.sysctl("ipv4.ip_forward", 1)
            forwarder.sysctl("ipv6.conf.all.forwarding", 1)
            for host in self.lab.servers():
                network.default_route(host.name, v4(BACK, 1), v6(BACK, 1))
        if self.kind == "dr":
            for host in self.lab.servers():
                own_silently(host)
                network.default_route(host.name, v4(FRONT, 2), v6(FRONT, 2))
                host.ns.ip(f"address add {self.vip(4)}/32 dev lo")
                host.ns.ip(f"address add {self.vip(6)}/128 dev lo nodad")
        super().start()
        for host in self.lab.servers():
            for family in (4, 6):
                own = self.vip(family) if self.kind == "dr" else None
                for port in (*PORTS, ONE):
                    self.echo[host.name, port, family] = EchoServer(host, port, family, own)
        self.config.services.extend(self.range_services())
        self.apply()
        self.steelyard.wait_in_sync()
        self.default = copy.deepcopy(self.config)

    def range_services(self):
        for family in (4, 6):
            for name, ports, host in (
                ("all", "all", "s1"),
                ("wide", "9300-9319", "s2"),
                ("narrow", "9301-9309", "s3"),
            ):
                server = RangeServer(self.lab[host].address(family), 0)
                yield Service(
                    f"{name}{family}", self.vip(family), ports, mode=self.kind, servers=[server]
                )
            if self.kind != "dr":
                server = Server(self.lab["s3"].address(family), ONE)
                yield Service(
                    f"one{family}", self.vip(family), "9400-9409", mode=self.kind, servers=[server]
                )

    def peers(self, host, port, family):
        return self.echo[host, port, family].peers


class RangeServer(Server):
    """The server receives the port that the client used."""

    def value(self):
        value = super().value()
        del value["port"]
        return value


@pytest.fixture(scope="module", params=MODES)
def range_stage(request):
    kind, options = MODES[request.param]
    with RangeStage(kind, **options) as stage:
        yield stage


@pytest.fixture
def ranges(range_stage, request):
    yield from check_accounting(range_stage, request)


def echo(one, text=b"who are you"):
    one.sendall(text)
    assert receive_exactly(one, len(text)) == text


def server_of(stage, one, port, family):
    """Returns the server whose listener on this port has the newest connection."""
    own = one.getsockname()
    for name in ("s1", "s2", "s3"):
        for peer in stage.peers(name, port, family):
            if stage.kind == "fnat" or peer == own[:2]:
                stage.echo[name, port, family].peers = []
                return name
    return None


@families
def test_narrowest_service_gets_the_port(ranges, family):
    for port, host in ((9300, "s2"), (9301, "s3"), (9310, "s2"), (9320, "s1")):
        with connect(ranges.client, ranges.vip(family), port) as one:
            echo(one)
            assert server_of(ranges, one, port, family) == host


@pytest.mark.parametrize("range_stage", ("fnat-1-worker", "nat-2-workers"), indirect=True)
@families
def test_range_maps_to_one_port(ranges, family):
    for port in (9400, 9405, 9409):
        with connect(ranges.client, ranges.vip(family), port) as one:
            echo(one)
            assert server_of(ranges, one, ONE, family) == "s3"


@families
def test_port_without_listener_is_refused(ranges, family):
    with pytest.raises(ConnectionRefusedError):
        connect(ranges.client, ranges.vip(family), 9311)


@families
def test_connections_survive_a_crash(ranges, family):
    open_ones = [connect(ranges.client, ranges.vip(family), port) for port in PORTS]
    for one in open_ones:
        echo(one)
    ranges.steelyard.restart_forwarder(signal.SIGKILL)
    for one in open_ones:
        echo(one, b"still there")
        one.close()
