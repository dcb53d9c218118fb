# SPDX-License-Identifier: Apache-2.0
"""SNAT: servers' own connections leave from a pool, and remotes see only the pool.

The forwarder is the servers' gateway. NAT and FNAT services of the same servers run beside."""

import contextlib
import copy
import socket

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, dns_txt, http_get, receive_exactly
from tests.lab.servers import EchoServer, start_nginx
from tests.lab.steelyard import DNS, SERVER_WEB, VIP, WEB
from tests.lab.topology import FRONT, v4, v6
from tests.wire.conftest import check_accounting
from tests.wire.test_nat import ECHO as NAT_ECHO
from tests.wire.test_nat import NAT, NETWORKS, NatStage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
POOL = {4: [v4(FRONT, 210), v4(FRONT, 211)], 6: [v6(FRONT, 210), v6(FRONT, 211)]}
OUT_ECHO, OUT_WEB = 9400, 9480


class SnatStage(NatStage):
    """The kernel routes no packet that SNAT translates: the source address would reveal it."""

    def start(self):
        super().start()
        outside = self.outside
        for family in (4, 6):
            self.echo[f"out{family}"] = EchoServer(outside, OUT_ECHO, family)
        start_nginx(self.lab, outside.name, OUT_WEB)
        inside = [f"{host.v4}/32" for host in self.lab.servers()]
        inside += [f"{host.v6}/128" for host in self.lab.servers()]
        if self.lab.network.arms == 2:
            inside = ["10.1.0.0/24", "fd00:1::/64"]
        self.config.snat = [{"name": "out", "inside": inside, "pool": POOL[4] + POOL[6]}]
        self.apply()
        self.default = copy.deepcopy(self.config)

    def rule(self):
        (rule,) = self.steelyard.get("snat")
        return rule

    def sessions_of_rule(self, **wanted):
        return [
            session
            for session in self.steelyard.sessions()
            if session.get("snat") == "out"
            and all(session[key] == value for key, value in wanted.items())
        ]


@pytest.fixture(scope="module", params=NETWORKS)
def snat_stage(request):
    with SnatStage(**NETWORKS[request.param]) as stage:
        yield stage


@pytest.fixture
def snat(snat_stage, request):
    yield from check_accounting(snat_stage, request)


def udp(host, family, port=0):
    one = host.ns.socket(socket.AF_INET if family == 4 else socket.AF_INET6, socket.SOCK_DGRAM)
    one.bind(("", port))
    one.settimeout(60)
    return one


@families
def test_tcp_leaves_from_the_pool(snat, family):
    before = snat.rule()["traffic"]
    outside = snat.outside.address(family)
    for name in ("s1", "s2", "s3"):
        with connect(snat.lab[name], outside, OUT_ECHO) as one:
            one.sendall(b"outbound")
            assert receive_exactly(one, 8) == b"outbound"
            source, port = one.getsockname()[:2]
            (session,) = snat.sessions_of_rule(client=source, client_port=port)
            assert (session["vip"], session["vip_port"]) == (outside, OUT_ECHO)
            assert session["state"] == "established"
            peer = snat.echo[f"out{family}"].peers[-1]
            assert peer == (session["local"], session["local_port"])
            assert peer[0] in POOL[family]
    assert http_get(snat.lab["s1"], outside, OUT_WEB).decode().strip() == snat.outside.name
    after = snat.rule()["traffic"]
    assert after["sessions_created"] == before["sessions_created"] + 4
    assert after["packets_in"] > before["packets_in"]
    assert after["packets_out"] > before["packets_out"]


@families
def test_one_pool_port_for_many_remotes(snat, family):
    """One socket to many remotes: the same pool address and port towards all at once."""
    outside = snat.outside.address(family)
    seen = set()
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(udp(snat.lab["s1"], family))
        for port in range(20000, 20024):
            remote = stack.enter_context(udp(snat.outside, family, port))
            server.sendto(b"%d" % port, (outside, port))
            data, peer = remote.recvfrom(100)
            assert data == b"%d" % port
            seen.add(peer[:2])
            remote.sendto(b"answer", peer)
            data, sender = server.recvfrom(100)
            assert (data, sender[:2]) == (b"answer", (outside, port))
    assert len(seen) == 1
    assert seen.pop()[0] in POOL[family]


@families
def test_inside_host_keeps_its_pool_address(snat, family):
    outside = snat.outside.address(family)
    peers = []
    with udp(snat.outside, family, 20400) as remote:
        for _ in range(8):
            with udp(snat.lab["s2"], family) as server:
                server.sendto(b"hello", (outside, 20400))
                peers.append(remote.recvfrom(100)[1][0])
        with connect(snat.lab["s2"], outside, OUT_ECHO) as one:
            one.sendall(b"1")
            assert receive_exactly(one, 1) == b"1"
    peers.append(snat.echo[f"out{family}"].peers[-1][0])
    assert len(set(peers)) == 1


@families
def test_ping_leaves_from_the_pool(snat, family):
    outside = snat.outside
    arrived = snat.lab.capture(outside.name)
    layer = "IP" if family == 4 else "IPv6"
    request = ("ICMP", 8) if family == 4 else ("ICMPv6EchoRequest", 128)

    def is_request(packet):
        return request[0] in packet and packet[request[0]].type == request[1]

    output = snat.lab["s3"].ns.run(
        ["ping", "-c3", "-i0.2", "-s600", "-W60", outside.address(family)]
    )
    assert " 0% packet loss" in output
    packet = arrived.wait_for(is_request, "an echo request arrives", outgoing=False)
    assert packet[layer].src in POOL[family]
    protocol = "icmp" if family == 4 else "icmpv6"
    sessions = snat.sessions_of_rule(client=snat.lab["s3"].address(family), protocol=protocol)
    assert [session["state"] for session in sessions] == ["echo"]


@pytest.mark.drops("snat-stray", "no-route")
@families
def test_policy_routing_by_type_of_service(snat, family):
    """The kernel compares it without the ECN bits, in IPv4 also without the precedence."""
    ns, flag = snat.lab["forwarder"].ns, {4: "", 6: "-6"}[family]
    tos = {4: 0xB2, 6: 0x12}[family]
    options = {4: (socket.IPPROTO_IP, socket.IP_TOS), 6: (socket.IPPROTO_IPV6, 67)}[family]
    rule = f"tos 0x10 to {snat.outside.address(family)} table 100 pref 60"

    def send():
        with udp(snat.lab["s1"], family) as one:
            one.setsockopt(*options, tos)
            one.sendto(b"x", (snat.outside.address(family), OUT_ECHO))

    ns.ip(f"{flag} rule add {rule}".strip())
    try:
        before = snat.steelyard.drops().get("no-route", 0)
        status = snat.steelyard.api.call
        wait_until(
            lambda: "pref 60" in str(status("GetStatus").forwarder.status.warnings),
            "the rule is read",
        )

        def refused():
            send()
            return snat.steelyard.drops().get("no-route", 0) > before

        wait_until(refused, "new sessions of this type of service are dropped")
    finally:
        ns.ip(f"{flag} rule del {rule}".strip())


@pytest.mark.drops("snat-stray")
@families
def test_packets_without_a_session_are_dropped_by_name(snat, family):
    with udp(snat.outside, family) as one:
        for address in POOL[family]:
            one.sendto(b"who is there?", (address, 5000))
    wait_until(lambda: snat.accounting.dropped().get("snat-stray", 0) >= 2, "both are dropped")
    # the pool's addresses answer pings, like all of the forwarder's addresses
    output = snat.outside.ns.run(["ping", "-c1", "-W60", POOL[family][0]])
    assert " 0% packet loss" in output


@pytest.mark.drops("nat-stray", "snat-stray")
@families
def test_connection_survives_a_restart(snat, family):
    outside = snat.outside.address(family)
    with connect(snat.lab["s1"], outside, OUT_ECHO) as one, udp(snat.outside, family, 20500) as far:
        one.sendall(b"before")
        assert receive_exactly(one, 6) == b"before"
        with udp(snat.lab["s1"], family) as near:
            near.sendto(b"before", (outside, 20500))
            _, peer = far.recvfrom(100)
            snat.steelyard.kill_forwarder()
            one.sendall(b"while it is away")
            snat.steelyard.start_forwarder()
            assert receive_exactly(one, 16) == b"while it is away"
            far.sendto(b"after", peer)
            assert near.recv(100) == b"after"
            snat.steelyard.upgrade()
            one.sendall(b"later")
            assert receive_exactly(one, 5) == b"later"
            near.sendto(b"later", (outside, 20500))
            assert far.recvfrom(100) == (b"later", peer)
    snat.steelyard.wait_reconnected()


@families
def test_services_of_the_same_servers_are_unaffected(snat, family):
    served = {http_get(snat.outside, VIP[family], WEB).decode().strip() for _ in range(6)}
    assert served == {"s1", "s2", "s3"}
    served = {http_get(snat.outside, NAT[family], WEB).decode().strip() for _ in range(6)}
    assert served == {"s1", "s2", "s3"}
    assert dns_txt(snat.outside, NAT[family], DNS) in served
    with connect(snat.outside, NAT[family], NAT_ECHO) as one:
        one.sendall(b"inbound")
        assert receive_exactly(one, 7) == b"inbound"
    # a server is an ordinary client of a VIP
    assert http_get(snat.lab["s1"], VIP[family], WEB).decode().strip() in served


@families
def test_host_and_inside_servers_reach_each_other(snat, family):
    forwarder, server = snat.lab["forwarder"], snat.lab["s1"]
    assert http_get(forwarder, server.address(family), SERVER_WEB).strip() == b"s1"
    output = server.ns.run(["ping", "-c1", "-W60", forwarder.address(family)])
    assert " 0% packet loss" in output
    with (
        EchoServer(forwarder, 9500, family),
        connect(server, forwarder.address(family), 9500) as one,
    ):
        one.sendall(b"to the host")
        assert receive_exactly(one, 11) == b"to the host"
    output = server.ns.run(["ping", "-c1", "-W60", snat.lab["s2"].address(family)])
    assert " 0% packet loss" in output


@pytest.mark.drops("no-session", "snat-stray", "unknown-destination", "nat-stray", "server-removed")
@families
def test_removed_rule_ends_its_sessions(snat, family):
    outside = snat.outside.address(family)
    with connect(snat.lab["s1"], outside, OUT_ECHO) as one:
        one.sendall(b"1")
        assert receive_exactly(one, 1) == b"1"
        snat.config.snat = []
        snat.apply()
        wait_until(lambda: not snat.sessions_of_rule(), "its sessions end")
    assert snat.steelyard.get("snat") == []
