# SPDX-License-Identifier: Apache-2.0
"""Selection of a server for a new session: schedulers, limits, persistence, backups, one-packet
sessions."""

import socket
from collections import Counter

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, connect, dns_txt, finish_wrk, http_get, start_wrk, wrk
from tests.lab.steelyard import DNS, VIP, WEB

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
SCHEDULERS = ("rr", "wrr", "lc", "wlc", "sed", "sh", "maglev", "conhash", "share", "p2c")


def web(stage, family=4):
    return stage.config[f"web{family}"]


def ask(stage, count, family=4, host="client"):
    """Returns the servers that answer this many connections."""
    bodies = (http_get(stage.lab[host], VIP[family], WEB) for _ in range(count))
    return Counter(body.decode().strip() for body in bodies)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@families
def test_every_scheduler_reaches_servers(stage, scheduler, family):
    web(stage, family).scheduler = scheduler
    stage.begin_again(web(stage, family))
    served = ask(stage, 60, family)
    assert served.total() == 60
    if scheduler in ("sh", "maglev", "conhash"):
        assert len(served) == 1, "one client address, one server"
        web(stage, family).spread = {"hash_on": "tuple"}
        stage.apply()
        served = ask(stage, 60, family)
    assert set(served) == {"s1", "s2", "s3"}


@pytest.mark.parametrize("scheduler", ("lc", "wlc", "sed"))
def test_load_is_balanced_by_sessions(stage, scheduler):
    service = web(stage)
    service.scheduler = scheduler
    for weight, server in enumerate(service.servers, 1):
        server.weight = weight
    stage.begin_again(service)
    open_ones = [HttpConnection(stage.client, VIP[4], WEB) for _ in range(30)]
    try:
        served = Counter(one.get() for one in open_ones)
        if scheduler == "lc":
            assert served == {"s1": 10, "s2": 10, "s3": 10}
        else:
            assert served == {"s1": 5, "s2": 10, "s3": 15}
        active = {
            server["address"]: server["traffic"]["sessions_active"]
            for server in stage.steelyard.service("web4")["servers"]
        }
        assert [active[stage.lab[name].address(4)] for name in ("s1", "s2", "s3")] == [
            served[name] for name in ("s1", "s2", "s3")
        ]
    finally:
        for one in open_ones:
            one.close()


def test_changing_the_scheduler_under_load_fails_nothing(stage):
    load = start_wrk(stage.lab, f"http://{VIP[4]}/", 3000, connections=16, keep_alive=False)
    kept = [HttpConnection(stage.client, VIP[4], WEB) for _ in range(6)]
    before = [one.get() for one in kept]
    for scheduler in SCHEDULERS * 2:
        web(stage).scheduler = scheduler
        web(stage).servers[0].weight += 1
        stage.apply()
        assert [one.get() for one in kept] == before
    assert not finish_wrk(load).failed
    for one in kept:
        one.close()


def without_sessions(stage):
    """Returns the service without sessions: those of earlier tests expire soon, perhaps before a
    late last segment."""
    service = web(stage)
    service.timeouts = {"time_wait": "1s", "closing": "1s", "reset": "1s"}
    stage.apply()
    wait_until(lambda: stage.steelyard.service("web4")["traffic"]["sessions_active"] == 0, "idle")
    return service


@pytest.mark.drops("connection-limit", "no-session")
def test_server_limit_is_exact(stage):
    service = without_sessions(stage)
    for server in service.servers:
        server.max_sessions = 4
    stage.apply()
    open_ones = [HttpConnection(stage.client, VIP[4], WEB) for _ in range(12)]
    assert Counter(one.get() for one in open_ones) == {"s1": 4, "s2": 4, "s3": 4}
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[4], WEB)
    assert stage.accounting.dropped()["connection-limit"] >= 1
    assert all(one.get() for one in open_ones)
    for one in open_ones:
        one.close()


@pytest.mark.drops("connection-limit", "no-session")
def test_service_limit_spares_existing_sessions(stage):
    service = without_sessions(stage)
    open_ones = [HttpConnection(stage.client, VIP[4], WEB) for _ in range(5)]
    before = [one.get() for one in open_ones]
    service.spread = {"max_sessions": 3}
    stage.apply()
    assert [one.get() for one in open_ones] == before
    with pytest.raises(ConnectionRefusedError):
        connect(stage.client, VIP[4], WEB)
    service.spread = {}
    stage.apply()
    assert ask(stage, 3).total() == 3
    for one in open_ones:
        one.close()


@families
def test_persistence_keeps_a_prefix_together(stage, family):
    web(stage, family).spread = {"persistence": {"timeout": "1h", "prefix4": 24, "prefix6": 64}}
    stage.apply()
    first, far = ask(stage, 20, family), ask(stage, 20, family, "far")
    assert len(first) == len(far) == 1
    (server,) = first
    # Clients leave a drained server, and stay with the next one.
    service = web(stage, family)
    service.server(stage.lab[server].address(family)).drain = True
    stage.apply()
    second = ask(stage, 20, family)
    assert len(second) == 1
    assert server not in second
    service.server(stage.lab[server].address(family)).drain = False
    service.scheduler = "wlc"
    stage.apply()
    assert ask(stage, 20, family) == second


def test_persistence_holds_under_load_on_all_workers(stage):
    web(stage).spread = {"persistence": {"timeout": "1h"}}
    stage.apply()
    load = wrk(stage.lab, f"http://{VIP[4]}/", 500, keep_alive=False)
    assert not load.failed
    assert len(load.served) == 1


def test_backup_serves_when_no_other_server_does(stage):
    service = web(stage)
    service.servers[2].backup = True
    stage.apply()
    assert set(ask(stage, 20)) == {"s1", "s2"}
    for server in service.servers[:2]:
        server.drain = True
    stage.apply()
    assert set(ask(stage, 10)) == {"s3"}
    service.servers[0].drain = False
    stage.apply()
    assert set(ask(stage, 10)) == {"s1"}


@families
def test_one_packet_schedules_each_datagram(stage, family):
    service = stage.config[f"dns{family}"]
    service.spread = {"one_packet": True}
    stage.begin_again(service)
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    with stage.client.ns.socket(kind, socket.SOCK_DGRAM) as one:
        served = Counter(dns_txt(stage.client, VIP[family], DNS, one=one) for _ in range(30))
    assert served == {"s1": 10, "s2": 10, "s3": 10}
    # Each answer has ended its session.
    assert stage.steelyard.service(f"dns{family}")["traffic"]["sessions_active"] == 0


def test_returning_server_starts_slowly(stage):
    service = web(stage)
    service.spread = {"slow_start": "1h"}
    service.servers[0].drain = True
    stage.apply()
    assert set(ask(stage, 20)) == {"s2", "s3"}
    service.servers[0].drain = False
    stage.apply()
    served = ask(stage, 66)  # one of 33, for hours
    assert 1 <= served["s1"] <= 2 + stage.workers
