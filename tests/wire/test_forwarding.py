# SPDX-License-Identifier: Apache-2.0
"""Forwarding by family, protocol and number of workers."""

import os
import socket
from collections import Counter

import pytest
from scapy.layers.inet import TCP, UDP
from scapy.layers.inet6 import IPv6

from tests.lab import wait_until
from tests.lab.clients import connect, dns_txt, http_get, receive_exactly, wrk
from tests.lab.steelyard import DNS, SERVER_DNS, VIP, WEB, local_addresses
from tests.wire.stage import ECHO, SERVER_ECHO

SO_NO_CHECK = 11
families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))


def hop_limit(packet):
    return packet[IPv6].hlim if IPv6 in packet else packet["IP"].ttl


def source(packet):
    return packet[IPv6].src if IPv6 in packet else packet["IP"].src


def is_tcp(server_port):
    return lambda packet: TCP in packet and server_port in (packet[TCP].sport, packet[TCP].dport)


def is_udp(port):
    return lambda packet: UDP in packet and port in (packet[UDP].sport, packet[UDP].dport)


@families
def test_tcp_reaches_every_server_in_turn(stage, family):
    bodies = [http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(30)]
    assert Counter(bodies).keys() == {"s1", "s2", "s3"}
    assert max(Counter(bodies).values()) <= 30 / 3 + stage.workers


@families
def test_udp_reaches_every_server_in_turn(stage, family):
    names = [dns_txt(stage.client, VIP[family], DNS) for _ in range(30)]
    assert Counter(names).keys() == {"s1", "s2", "s3"}
    assert max(Counter(names).values()) <= 30 / 3 + stage.workers


@families
def test_routed_client_is_served(stage, family):
    assert http_get(stage.lab["far"], VIP[family], WEB).decode().strip() in stage.nginx
    assert dns_txt(stage.lab["far"], VIP[family], DNS) in stage.dns


@families
def test_tcp_server_sees_a_local_address(stage, family):
    address = stage.lab["s1"].address(family)
    capture = stage.lab.capture("s1")
    with connect(stage.client, VIP[family], ECHO) as one:
        one.sendall(b"hello")
        assert receive_exactly(one, 5) == b"hello"
        seen = stage.echo[family].peers[-1]
        own = one.getsockname()
        (session,) = (
            session
            for session in stage.steelyard.sessions("--service", f"echo{family}")
            if session["client_port"] == own[1]
        )
    assert seen[0] in local_addresses(stage.lab.network.back_net)
    assert (session["local"], session["local_port"]) == seen
    assert (session["client"], session["client_port"]) == own[:2]
    assert (session["server"], session["server_port"]) == (address, SERVER_ECHO)
    assert (session["vip"], session["vip_port"]) == (VIP[family], ECHO)
    packet = capture.wait_for(is_tcp(SERVER_ECHO), "the client's SYN", outgoing=False)
    assert source(packet) == seen[0]
    assert packet[TCP].sport == seen[1]


@families
def test_web_server_logs_only_local_addresses(stage, family):
    lines = stage.watch_logs()
    for n in range(6):
        http_get(stage.client, VIP[family], WEB, f"/logged{n}")

    def logged():
        return [peer for peer, _, _, path in lines() if path.startswith("/logged")]

    wait_until(lambda: len(logged()) == 6, "the servers log six requests")
    assert set(logged()) <= set(local_addresses(stage.lab.network.back_net))


@families
def test_tcp_hop_limit_falls_by_one_each_way(stage, family):
    at_server, at_client = stage.lab.capture("s1"), stage.lab.capture("client")
    with connect(stage.client, VIP[family], ECHO):
        to_server = at_server.wait_for(is_tcp(SERVER_ECHO), "the SYN", outgoing=False)
        to_client = at_client.wait_for(is_tcp(ECHO), "the SYN-ACK", outgoing=False)
    assert hop_limit(to_server) == hop_limit(to_client) == 63


@families
def test_udp_hop_limit_falls_by_one_each_way(stage, family):
    captures = {name: stage.lab.capture(name) for name in (*stage.dns, "client")}
    name = dns_txt(stage.client, VIP[family], DNS)
    query = captures[name].wait_for(is_udp(SERVER_DNS), "the query", outgoing=False)
    answer = captures["client"].wait_for(is_udp(DNS), "the answer", outgoing=False)
    assert hop_limit(query) == hop_limit(answer) == 63
    assert source(query) in local_addresses(stage.lab.network.back_net)


@families
def test_one_udp_flow_stays_with_its_server(stage, family):
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with stage.client.ns.socket(kind, socket.SOCK_DGRAM) as one:
        names = {dns_txt(stage.client, VIP[family], DNS, one=one) for _ in range(10)}
    assert len(names) == 1


def test_udp_zero_checksum_is_kept(stage):
    captures = [stage.lab.capture(name) for name in stage.dns]
    with stage.client.ns.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
        dns_txt(stage.client, VIP[4], DNS, one=one)
    queries = wait_until(
        lambda: [
            packet
            for capture in captures
            for packet in capture.packets(is_udp(SERVER_DNS), outgoing=False)
        ],
        "the query reaches a server",
    )
    assert queries[0][UDP].chksum == 0


@families
def test_large_transfers_arrive_whole(stage, family):
    stage.check_transfers(stage.client, VIP[family], WEB, ECHO)


@families
def test_vip_answers_ping(stage, family):
    for host in ("client", "far"):
        output = stage.lab[host].ns.run(["ping", "-c3", "-i0.2", "-W60", "-s1200", VIP[family]])
        assert " 0% packet loss" in output


@pytest.mark.drops("no-service")
@families
def test_port_without_service_is_dropped_by_name(stage, family):
    with pytest.raises(TimeoutError):
        connect(stage.client, VIP[family], 81, timeout_s=0.5)
    with pytest.raises(TimeoutError):
        dns_txt(stage.client, VIP[family], 54, timeout_s=0.2)
    assert stage.accounting.dropped()["no-service"] >= 2


# Socket options that add these to every packet; numbers from linux/in.h and linux/in6.h.
RECORD_ROUTE = (socket.IPPROTO_IP, 4, bytes([7, 7, 4, 0, 0, 0, 0, 0]))
HOP_BY_HOP = (socket.IPPROTO_IPV6, 54, bytes([0, 0, 1, 4, 0, 0, 0, 0]))
DESTINATION = (socket.IPPROTO_IPV6, 59, bytes([0, 0, 1, 4, 0, 0, 0, 0]))


@pytest.mark.parametrize(
    "family, option",
    ((4, RECORD_ROUTE), (6, HOP_BY_HOP), (6, DESTINATION)),
    ids=("record-route", "hop-by-hop", "destination"),
)
def test_tcp_with_ip_options_connects(stage, family, option):
    """The options stay in the packets."""
    capture = stage.lab.capture("s1")
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    data = os.urandom(20000)
    with stage.client.ns.socket(kind, socket.SOCK_STREAM) as one:
        one.setsockopt(*option)
        one.settimeout(60)
        one.connect((VIP[family], ECHO))
        one.sendall(data)
        assert receive_exactly(one, len(data)) == data
    packet = capture.wait_for(is_tcp(SERVER_ECHO), "the client's SYN", outgoing=False)
    assert packet["IP"].ihl == 7 if family == 4 else packet[IPv6].nh in (0, 60)


def test_workers_share_the_sessions(stage):
    """Each of two workers owns half of the slots, although all packets arrive at one queue."""
    before = {worker["id"]: worker for worker in stage.steelyard.get("workers")}
    load = wrk(stage.lab, f"http://{VIP[4]}/", 300, keep_alive=False)
    assert not load.failed
    after = {worker["id"]: worker for worker in stage.steelyard.get("workers")}
    assert len(after) == stage.workers
    if stage.workers == 2:
        assert all(worker["slots"] == 128 for worker in after.values())
        steered = [after[n]["steered_in"] - before[n]["steered_in"] for n in after]
        assert max(steered) > 300, "hardly a packet was steered to its owner"


@families
def test_counters_agree_with_the_traffic(stage, family):
    name, address = f"echo{family}", stage.lab["s1"].address(family)
    before = stage.steelyard.service(name)["traffic"]
    server_before = stage.steelyard.server(name, address)["traffic"]
    with connect(stage.client, VIP[family], ECHO) as one:
        one.sendall(b"counted")
        receive_exactly(one, 7)
        during = stage.steelyard.service(name)["traffic"]
    assert during["sessions_created"] == before["sessions_created"] + 1
    assert during["packets_in"] - before["packets_in"] >= 3
    assert during["packets_out"] - before["packets_out"] >= 2
    overhead = (20 if family == 4 else 40) + 20
    assert during["bytes_in"] - before["bytes_in"] >= 3 * overhead + 7
    # The service also counts traffic of servers that other tests have removed since.
    server = stage.steelyard.server(name, address)["traffic"]
    assert server["sessions_created"] == server_before["sessions_created"] + 1
