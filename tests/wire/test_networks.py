# SPDX-License-Identifier: Apache-2.0
"""Other networks: one arm, several queues, generic XDP, a small MTU, offload left on."""

import os
import socket

import pytest
from scapy.layers.inet import ICMP, TCP
from scapy.layers.inet6 import ICMPv6PacketTooBig

from tests.lab import wait_until
from tests.lab.clients import connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.steelyard import DNS, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, SERVER_ECHO, Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
SMALL_MTU = 1400

NETWORKS = {
    "one-armed-1-worker": {"arms": 1},
    "one-armed-2-workers": {"arms": 1, "workers": 2},
    "2-queues-1-worker": {"queues": 2},
    "2-queues-2-workers": {"queues": 2, "workers": 2},
    "generic-xdp": {"mode": "generic"},
    "no-huge": {"huge": False},
}


@pytest.fixture(scope="module", params=NETWORKS)
def network_stage(request):
    with Stage(**NETWORKS[request.param]) as stage:
        yield stage


@pytest.fixture
def other(network_stage, request):
    yield from check_accounting(network_stage, request)


@families
def test_traffic_is_served_on_every_network(other, family):
    served = {http_get(other.client, VIP[family], WEB).decode().strip() for _ in range(12)}
    assert served == {"s1", "s2", "s3"}
    assert {dns_txt(other.client, VIP[family], DNS) for _ in range(12)} == served
    url = f"http://{VIP[4]}/" if family == 4 else f"http://[{VIP[6]}]/"
    for keep_alive in (True, False):
        load = wrk(other.lab, url, 1500, keep_alive=keep_alive)
        assert not load.failed, load
    for name in other.nginx:
        (other.lab.dir / f"nginx-{name}" / "files" / "large").write_bytes(os.urandom(500_000))
    assert len(http_get(other.client, VIP[family], WEB, "/files/large")) == 500_000


WATCHED = 256  # segments of a session whose owner detects losses


@families
def test_remote_sessions_are_forwarded(other, family):
    """Directly if each worker has a queue at each port; otherwise by the owner."""

    def remote():
        return sum(worker["remote"] for worker in other.steelyard.get("workers"))

    queues = {port["name"]: port["queues"] for port in other.steelyard.get("ports")}
    before = remote()
    for _ in range(8):  # each direction of each connection arrives by one queue of two
        with connect(other.client, VIP[family], ECHO) as one:
            for n in range(WATCHED):
                one.sendall(b"hello %3d" % n)
                assert receive_exactly(one, 9) == b"hello %3d" % n
    assert (remote() > before) == (other.workers == 2 and min(queues.values()) == 2)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def small_stage(request):
    with Stage(workers=request.param, server_mtu=SMALL_MTU) as stage:
        yield stage


@pytest.fixture
def small(small_stage, request):
    yield from check_accounting(small_stage, request)


@families
def test_mss_is_clamped_to_the_servers_mtu(small, family):
    captures = small.lab.capture("s1"), small.lab.capture("client")
    with connect(small.client, VIP[family], ECHO) as one:
        syn = captures[0].wait_for(
            lambda p: TCP in p and p[TCP].dport == SERVER_ECHO, "the SYN", outgoing=False
        )
        answer = captures[1].wait_for(
            lambda p: TCP in p and p[TCP].sport == ECHO, "the SYN-ACK", outgoing=False
        )
        limit = SMALL_MTU - (40 if family == 4 else 60)
        for packet in (syn, answer):
            assert dict(packet[TCP].options)["MSS"] <= limit
        data = os.urandom(200_000)
        for at in range(0, len(data), 20_000):
            one.sendall(data[at : at + 20_000])
            assert receive_exactly(one, 20_000) == data[at : at + 20_000]


@families
def test_mss_of_a_server_with_a_larger_mtu_is_clamped(small, family):
    """The client must not send more than the back port's MTU, whatever MSS the server offers."""
    server = small.lab["s1"].ns
    server.ip("link set eth0 mtu 1500")
    try:
        capture = small.lab.capture("client")
        with connect(small.client, VIP[family], ECHO):
            answer = capture.wait_for(
                lambda p: TCP in p and p[TCP].sport == ECHO, "the SYN-ACK", outgoing=False
            )
        limit = SMALL_MTU - (40 if family == 4 else 60)
        assert dict(answer[TCP].options)["MSS"] <= limit
    finally:
        server.ip(f"link set eth0 mtu {SMALL_MTU}")


def is_too_big(packet):
    """ICMP "fragmentation needed", or ICMPv6 "packet too big"."""
    if ICMP in packet:
        return packet[ICMP].type == 3 and packet[ICMP].code == 4
    return ICMPv6PacketTooBig in packet


@pytest.mark.drops("too-big")
@families
def test_oversized_datagram_is_reported_to_its_sender(small, family):
    """The sender's kernel accepts the error and learns the MTU."""
    capture = small.lab.capture("client")
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    # The socket stays open: a kernel accepts such an error only for an existing socket.
    with small.client.ns.socket(kind, socket.SOCK_DGRAM) as one:
        one.sendto(bytes(SMALL_MTU), (VIP[family], DNS))
        error = capture.wait_for(is_too_big, "the ICMP error", outgoing=False)
        wait_until(
            lambda: f"mtu {SMALL_MTU}" in small.client.ns.ip(f"route get {VIP[family]}"),
            "the client's kernel has learned the MTU",
        )
    mtu = error[ICMP].nexthopmtu if ICMP in error else error[ICMPv6PacketTooBig].mtu
    assert mtu == SMALL_MTU
    assert small.accounting.dropped()["too-big"] >= 1


def test_unfinished_checksums_are_forwarded():
    """The peer's checksum offload stays on although no hardware completes the checksums."""
    with Stage(offload=("client",), checked=False) as stage:
        with pytest.raises(TimeoutError):
            connect(stage.client, VIP[4], WEB, timeout_s=0.5)
        with pytest.raises(TimeoutError):
            dns_txt(stage.client, VIP[6], DNS, timeout_s=0.5)
        drops = stage.steelyard.drops()
        assert set(drops) == {"unfinished-checksum"}
        assert "tx off" in stage.steelyard.cli("get", "drops")
        stage.client.ns.run(["ethtool", "-K", "eth0", "tx", "off"])
        assert http_get(stage.client, VIP[4], WEB)
