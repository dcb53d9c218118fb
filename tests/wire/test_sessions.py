# SPDX-License-Identifier: Apache-2.0
"""Sessions: how they end, and the effect of added, removed and reweighted servers."""

import select
import socket
from collections import Counter

import pytest

from tests.lab import Server, wait_until
from tests.lab.clients import (
    HttpConnection,
    abort,
    connect,
    dns_txt,
    http_get,
    receive_exactly,
    wrk,
)
from tests.lab.servers import start_dns
from tests.lab.steelyard import DNS, SERVER_WEB, VIP, WEB
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))

WALL = """\
table inet wall {
    chain in {
        type filter hook input priority 0
        ip saddr { 10.1.0.200, 10.1.0.201 } tcp dport 8080 drop
        ip6 saddr { fd00:1::200, fd00:1::201 } tcp dport 8080 drop
    }
}
"""


def states(stage, service):
    return Counter(session["state"] for session in stage.steelyard.sessions("--service", service))


@pytest.mark.drops("no-session")
@families
def test_idle_tcp_session_expires(stage, family):
    service = stage.config[f"echo{family}"]
    service.timeouts = {"established": "1s"}
    service.spread = {"resets": {"expired": False}}
    stage.apply()
    with connect(stage.client, VIP[family], ECHO, timeout_s=1) as one:
        one.sendall(b"x")
        receive_exactly(one, 1)
        client = stage.client.address(family)

        def expired():
            sessions = stage.steelyard.sessions("--service", service.name)
            return not [s for s in sessions if (s["client"], s["client_port"]) == (client, port)]

        port = one.getsockname()[1]
        wait_until(expired, "the idle session expires")
        one.sendall(b"late")
        wait_until(
            lambda: stage.accounting.dropped().get("no-session"), "a late packet finds no session"
        )
        abort(one)


@families
def test_udp_session_expires(stage, family):
    service = stage.config[f"dns{family}"]
    service.timeouts = {"udp": "1s", "udp_one_way": "1s"}
    stage.apply()
    dns_txt(stage.client, VIP[family], DNS)
    wait_until(lambda: not states(stage, service.name), "the UDP sessions expire")
    assert dns_txt(stage.client, VIP[family], DNS)


# An end that stalled for a second retransmits its last segment too late.
@pytest.mark.drops("no-session")
@families
def test_tcp_session_ends_after_both_sides_closed(stage, family):
    service = stage.config[f"web{family}"]
    service.timeouts = {"time_wait": "1s", "closing": "1s", "fin_wait": "2s"}
    stage.apply()
    http_get(stage.client, VIP[family], WEB)
    wait_until(lambda: not states(stage, service.name), "the closed session is gone")


@pytest.mark.drops("no-session")
@families
def test_reset_ends_a_session_at_once(stage, family):
    service = stage.config[f"echo{family}"]
    service.timeouts = {"reset": "1s", "time_wait": "1s"}
    stage.apply()
    one = connect(stage.client, VIP[family], ECHO)
    wait_until(lambda: states(stage, service.name), "the session is listed")
    abort(one)
    wait_until(lambda: not states(stage, service.name), "the reset session is gone")


def open_on(stage, family, server):
    """Returns a keep-alive connection that a given server answers."""
    for _ in range(20):
        connection = HttpConnection(stage.client, VIP[family], WEB, timeout_s=2)
        if connection.get() == server:
            return connection
        connection.close()
    raise AssertionError(f"{server} never answered")


@pytest.mark.drops("server-removed", "no-session")
@families
def test_removed_server_ends_its_sessions_alone(stage, family):
    service = stage.config[f"web{family}"]
    with open_on(stage, family, "s1") as doomed, open_on(stage, family, "s2") as other:
        service.servers.remove(service.server(stage.lab["s1"].address(family)))
        stage.apply()
        doomed.socket.settimeout(2)  # for an answer that must not arrive
        with pytest.raises(OSError):
            doomed.get()
        abort(doomed.socket)
        assert other.get() == "s2"
        served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(10)}
        assert served == {"s2", "s3"}

        def live():
            return {s["server"] for s in stage.steelyard.sessions("--service", service.name)}

        assert stage.lab["s2"].address(family) in live()
        wait_until(lambda: stage.lab["s1"].address(family) not in live(), "its sessions are over")


@pytest.mark.drops("server-removed", "no-session", "no-service")
def test_removed_service_ends_and_can_return(stage):
    service = stage.config["echo4"]
    with connect(stage.client, VIP[4], ECHO, timeout_s=0.5) as one:
        one.sendall(b"x")
        receive_exactly(one, 1)
        stage.config.services.remove(service)
        stage.apply()
        with pytest.raises(TimeoutError):
            connect(stage.client, VIP[4], ECHO, timeout_s=0.5)
        abort(one)
        stage.config.services.append(service)
        stage.apply()
        with connect(stage.client, VIP[4], ECHO) as again:
            again.sendall(b"y")
            assert receive_exactly(again, 1) == b"y"


@families
def test_weights_decide_the_shares(stage, family):
    service = stage.config[f"web{family}"]
    for host, weight in zip(stage.lab.servers(), (5, 3, 2), strict=True):
        service.server(host.address(family)).weight = weight
    stage.apply()
    url = f"http://{VIP[4]}/" if family == 4 else f"http://[{VIP[6]}]/"
    load = wrk(stage.lab, url, 1000, keep_alive=False)
    assert not load.failed
    for host, share in (("s1", 0.5), ("s2", 0.3), ("s3", 0.2)):
        assert abs(load.served[host] / load.requests - share) < 0.04, load.served


@families
def test_weight_zero_takes_no_new_sessions(stage, family):
    service = stage.config[f"web{family}"]
    with open_on(stage, family, "s3") as old:
        service.server(stage.lab["s3"].address(family)).weight = 0
        stage.apply()
        served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(12)}
        assert served == {"s1", "s2"}
        assert old.get() == "s3"


@families
def test_drained_server_keeps_its_sessions_alone(stage, family):
    address = stage.lab["s2"].address(family)
    target = f"{address}@web{family}" if family == 4 else f"[{address}]:{SERVER_WEB}@web{family}"
    with open_on(stage, family, "s2") as old:
        stage.steelyard.cli("drain", target)
        stage.steelyard.wait_server(f"web{family}", address, "drain")
        served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(12)}
        assert served == {"s1", "s3"}
        assert old.get() == "s2"
    stage.steelyard.cli("drain", target, "--undo")
    stage.steelyard.wait_server(f"web{family}", address, "up")
    served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(12)}
    assert "s2" in served


@pytest.mark.drops("no-server")
@families
def test_service_without_servers_drops_by_name(stage, family):
    service = stage.config[f"web{family}"]
    service.servers = []
    stage.apply()
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[family], WEB)
    assert stage.accounting.dropped().get("no-server")


@families
def test_server_in_two_services_serves_both(stage, family):
    service = stage.config[f"echo{family}"]
    service.servers = [Server(stage.lab["s3"].address(family), SERVER_WEB)]
    stage.apply()
    assert http_get(stage.client, VIP[family], ECHO) == b"s3\n"


@families
def test_failed_health_check_takes_a_server_out_and_back(stage, family):
    address = stage.lab["s3"].address(family)
    stage.nginx["s3"].stop()
    stage.steelyard.wait_server(f"web{family}", address, "down")
    served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(12)}
    assert served == {"s1", "s2"}
    stage.restore()
    stage.steelyard.wait_server(f"web{family}", address, "up")
    served = {http_get(stage.client, VIP[family], WEB).decode().strip() for _ in range(12)}
    assert served == {"s1", "s2", "s3"}


@pytest.mark.drops("no-session", "no-server")
@families
def test_udp_client_leaves_a_server_that_is_down(stage, family):
    """With the same source port, hence the same session."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with stage.client.ns.socket(kind, socket.SOCK_DGRAM) as one:
        first = dns_txt(stage.client, VIP[family], DNS, one=one)
        stage.dns[first].stop()
        try:
            address = stage.lab[first].address(family)
            stage.steelyard.wait_server(f"dns{family}", address, "down")
            assert dns_txt(stage.client, VIP[family], DNS, one=one) in set(stage.dns) - {first}
        finally:
            stage.dns[first] = start_dns(stage.lab, first)


@pytest.mark.drops("no-session")
@families
def test_repeated_syn_leaves_a_server_that_is_down(stage, family):
    service, s3 = stage.config[f"web{family}"], stage.lab["s3"]
    for name in ("s1", "s2"):
        service.server(stage.lab[name].address(family)).weight = 0
    stage.apply()
    # s3 receives its health checks, but no client packets.
    s3.ns.run(["nft", "-f", "-"], stdin=WALL)
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    try:
        with stage.client.ns.socket(kind) as one:
            one.setblocking(False)
            one.connect_ex((VIP[family], WEB))
            wait_until(lambda: states(stage, service.name), "the SYN made a session")
            for name in ("s1", "s2"):
                service.server(stage.lab[name].address(family)).weight = 1
            stage.apply()
            stage.nginx["s3"].stop()
            stage.steelyard.wait_server(service.name, s3.address(family), "down")
            one.settimeout(60)
            wait_until(lambda: select.select([], [one], [], 0)[1], "another server answers")
            one.sendall(b"GET / HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")
            answer = b""
            while part := one.recv(65536):
                answer += part
            assert answer.split()[-1] in (b"s1", b"s2")
    finally:
        s3.ns.run(["nft", "delete", "table", "inet", "wall"])
