# SPDX-License-Identifier: Apache-2.0
"""Shares of new sessions follow what the forwarder measures passively: the link to s3 is late.

Delays are compared with one another, never with a time."""

from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.link import Link
from tests.lab.steelyard import VIP, WEB

LATE = {"delay_ms": 20}  # each way
FAST = {"settle": "2s"}
# Packets in flight while web() removes the previous test's service and its sessions.
pytestmark = pytest.mark.drops("server-removed", "no-session")


def ask(stage, count, host="client"):
    bodies = (http_get(stage.lab[host], VIP[4], WEB) for _ in range(count))
    return Counter(body.decode().strip() for body in bodies)


def servers(stage):
    """Returns what `get servers -o json` reports, by name."""
    names = {stage.lab[name].address(4): name for name in ("s1", "s2", "s3")}
    return {names[s["address"]]: s for s in stage.steelyard.service("web4")["servers"]}


def share_of(stage, name):
    """Returns the share that the forwarder uses; 0: none yet."""
    return servers(stage)[name].get("share", {}).get("share", 0)


def web(stage, scheduler, **spread):
    service = stage.config["web4"]
    service.scheduler, service.health = scheduler, {"type": "none"}
    service.spread = spread
    for server in service.servers:
        server.weight = 10
    stage.begin_again(service)  # counters of earlier tests would interfere
    stage.steelyard.wait_in_sync()


def test_passive_delays_show_the_late_server(stage):
    web(stage, "wrr")
    asked = 0
    with Link(stage.lab, "s3", **LATE):

        def is_seen():
            """Tries again after a stall of the machine, which delays the others."""
            nonlocal asked
            ask(stage, 30)
            asked += 30
            delay = {name: s["delay"] for name, s in servers(stage).items()}
            # Karn's algorithm: a repeated SYN yields no sample.
            samples, again = (
                sum(d[name] for d in delay.values()) for name in ("samples", "syn_repeated")
            )
            assert asked - again <= samples <= asked
            assert all(d["samples"] == sum(d["buckets"]) for d in delay.values())
            mean = {name: d["sum_ns"] / max(d["samples"], 1) for name, d in delay.items()}
            assert mean["s3"] > 40_000_000 * 0.99, "it is late by no less than that"
            assert delay["s3"]["smoothed_ns"] > 40_000_000 * 0.99
            # Bucket i: below 2^i µs. Every answer takes at least one, and over the link at least 32
            # ms, on any machine.
            assert not any(d["buckets"][0] for d in delay.values())
            assert not any(delay["s3"]["buckets"][:16])
            return mean["s3"] > max(mean["s1"], mean["s2"])

        wait_until(is_seen, "s3 is later than the others")
    text = stage.steelyard.cli("describe", "server", stage.lab["s3"].address(4))
    assert "answers to SYNs: " in text and " handshakes" in text


def test_repeated_syns_are_counted(stage):
    web(stage, "wrr")
    # Enough for s3 also if two workers alternate between servers.
    with Link(stage.lab, "s3", loss=1.0) as link, ThreadPoolExecutor() as pool:
        ways = [
            pool.submit(connect, stage.client, VIP[4], WEB) for _ in range(8)
        ]  # each worker: s3 as well

        def repeated():
            all_of = servers(stage).items()
            return {name: s.get("delay", {}).get("syn_repeated", 0) for name, s in all_of}

        # A busy machine's clients may repeat others' SYNs, too, but not all the time.
        wait_until(lambda: (n := repeated())["s3"] > n["s1"] + n["s2"], "the client's second SYN")
        link.set(loss=0)
        for one in ways:
            one.result().close()


def watched(stage, name):
    """Returns the number of segments and of lost ones."""
    delay = servers(stage)[name].get("delay", {})
    return delay.get("segments", 0), delay.get("segments_lost", 0)


@pytest.mark.parametrize("way", ("to the server", "from it"))
def test_lost_segments_are_counted(stage, way):
    """On connections that are open before the link starts to lose, so that no SYN is lost."""
    web(stage, "wrr")
    direction = "ba" if way == "to the server" else "ab"
    request = b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 1000 + b"\r\n\r\n"

    def talk(one):
        """Sends requests without waiting for answers: most segments have others behind them."""
        with one, one.makefile("rb") as answers:
            for _ in range(10):
                one.sendall(request)
            served = 0
            while served < 10:
                line = answers.readline()
                assert line, "the connection goes on"
                served += line.startswith(b"HTTP/1.1 200")

    with Link(stage.lab, "s3") as link, ThreadPoolExecutor(9) as pool:

        def is_seen():
            ways = [connect(stage.client, VIP[4], WEB) for _ in range(9)]
            link.set(direction, loss=0.2)
            list(pool.map(talk, ways))
            link.set(direction, loss=0)
            parts = {}
            for name in ("s1", "s2", "s3"):
                segments, lost = watched(stage, name)
                parts[name] = lost / max(1, segments)
            # A worker watches one session per client and server at a time. Clients on a slow
            # machine may retransmit without loss.
            others = max(parts["s1"], parts["s2"])
            return lost >= 3 and watched(stage, "s1")[0] > 0 and parts["s3"] > 3 * others

        wait_until(is_seen, "lost segments of s3")
    text = stage.steelyard.cli("describe", "server", stage.lab["s3"].address(4))
    assert "watched segments lost" in text or "watched segment lost" in text


@pytest.mark.parametrize("scheduler", ("share", "wrr", "maglev"))
def test_shares_follow_delays(stage, scheduler):
    spread = {"hash_on": "tuple"} if scheduler == "maglev" else {}
    web(stage, scheduler, feedback=FAST, **spread)
    with Link(stage.lab, "s3", **LATE):

        def little():
            ask(stage, 10)
            return 0 < share_of(stage, "s3") < 0.19

        wait_until(little, "little for s3")

        def is_followed():
            served = ask(stage, 150)
            return 1.5 * served["s3"] < min(served["s1"], served["s2"])  # not by chance alone

        wait_until(is_followed, "sessions follow shares")
        wait_until(little, "still little for s3")
        after = servers(stage)
        assert all(s["weight"] == 10 for s in after.values())
        assert after["s3"]["share"]["state"] == "partly"
        assert after["s3"]["share"]["phi"] < after["s1"]["share"]["phi"]
        text = stage.steelyard.cli("describe", "service", "web4")
        assert "capability, gamma 0.5" in text and "SHARE" in text


def test_kept_sessions_stay_when_shares_move(stage):
    web(stage, "share", feedback=FAST)
    with Link(stage.lab, "s3", **LATE):
        kept = [connect(stage.client, VIP[4], WEB) for _ in range(30)]
        try:
            wait_until(
                lambda: ask(stage, 5) and 0 < share_of(stage, "s3") < 0.19,
                "little for s3",
            )
            for one in kept:
                one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
                assert one.makefile("rb").readline().startswith(b"HTTP/1.1 200")
        finally:
            for one in kept:
                one.close()


def test_p2c_avoids_the_late_server(stage):
    web(stage, "p2c")
    with Link(stage.lab, "s3", **LATE):

        def is_avoided():
            """Once the delay is known, and the machine has not delayed the others."""
            served = ask(stage, 100)
            return 3 * served["s3"] < min(served["s1"], served["s2"])

        wait_until(is_avoided, "s3 is avoided")


def test_feedback_ends_with_the_configuration(stage):
    web(stage, "share", feedback=FAST)
    wait_until(lambda: share_of(stage, "s1") > 0, "shares")
    stage.config["web4"].spread = {}
    stage.apply()
    wait_until(lambda: "share" not in servers(stage)["s1"], "weights again")
