# SPDX-License-Identifier: Apache-2.0
"""The link emulator between two hosts: capacity, time and random draws, as kernels observe them.

No test depends on speed: delayed packets wait for link.hurry(), and senders wait until the link has
received their packets."""

import math
import signal
import socket
import struct
import time
from collections import Counter

import pytest

from tests.lab.link import Link, balance, predict
from tests.wire.link_stage import AGES, Flow, families, outcome_counters, received_frames, rtts

# ---- nothing is lost that need not be ------------------------------------------------------------


def test_delayed_packets_all_arrive(link_lab, link):
    """100 000 large packets in flight, and 30 000 small ones behind them: all arrive, however
    slowly the first ones leave, because the queue has capacity for all."""
    with Flow(link) as flow:
        before, frames = link.stats("ab"), received_frames(link_lab, link)
        link.set("ab", **AGES)
        flow.send(100_000, 1472)
        assert link.stats("ab")["on_the_way"] >= 100_000
        link.set("ab", delay_ms=0)
        link.hurry()
        flow.send(30_000)
        stats = link.settle()["ab"]
        assert stats["dropped"] == 0, stats["drops"]
        assert stats["delivered"] - before["delivered"] >= 130_000
        assert stats["on_the_way_most"] >= 100_000
        assert received_frames(link_lab, link) - frames == stats["delivered"] - before["delivered"]


def check_first_arrived(numbers, room):
    """The first ones have arrived, except where kernels' own packets used their capacity."""
    assert numbers == list(range(len(numbers)))
    assert room - 10 < len(numbers) <= room


def test_packets_beyond_capacity_are_counted(link_lab):
    with Link(link_lab, "client", "far", options=["--packets", 100]) as link, Flow(link) as flow:
        link.set("ab", **AGES)
        flow.send(150)
        stats = link.stats("ab")
        assert stats["on_the_way"] == 100
        assert 50 <= stats["drops"]["no-memory"] <= stats["arrived"] - 100
        link.set("ab", delay_s=0)
        link.hurry()
        check_first_arrived(flow.received(), 100)


def test_packets_beyond_the_ring_are_counted(link_lab):
    """While the emulator gets no CPU, its ring fills up; later packets are lost under that
    counter."""
    with Link(link_lab, "client", "far", options=["--ring", 64]) as link, Flow(link) as flow:
        link.process.send(signal.SIGSTOP)
        for number in range(200):
            flow.source.send(struct.pack("!I", number).ljust(100, b"."))
        link.process.send(signal.SIGCONT)
        flow.wait(200)
        stats = link.stats("ab")
        assert 200 - 64 <= stats["drops"]["receive-ring"] <= stats["arrived"] - 64
        check_first_arrived(flow.received(), 64)
        assert balance(link.stats("ab")) == 0


def test_packets_for_an_interface_that_is_down_are_counted(link):
    """The link continues when the interface is up again."""
    with Flow(link) as flow:
        link.ns.ip("link set end-b down")
        flow.send(3)
        stats = link.settle()["ab"]
        assert stats["drops"]["send"] == stats["dropped"] >= 3
        assert link.process.idle_cost(jiffies=20) < 50
        link.ns.ip("link set end-b up")
        flow.send(3)
        assert flow.received() == [0, 1, 2]


# ---- time ----------------------------------------------------------------------------------------


@families
def test_no_packet_arrives_before_its_delay(link_lab, link, family):
    """Neither before a change of the delay nor after it."""
    address = link.address("b", family)
    link.set("ab", delay_ms=30)
    link.set("ba", delay_ms=10)
    assert min(rtts(link_lab, address)) >= 40
    link.set("ab", delay_ms=5, jitter_ms=5, distribution="normal")
    assert min(rtts(link_lab, address)) >= 15


def test_rate_is_never_exceeded(link):
    """At each moment, the transmitter has started at most what the rate allows since the first
    packet, plus one frame."""
    rate, frame = 4_000_000, 8000
    with Flow(link) as flow:
        before = link.stats("ab")["transmitted_bytes"]
        link.set("ab", rate_mbit=rate / 1e6, queue_packets=0)
        began = time.monotonic()
        flow.send(300, 958)
        while True:
            stats = link.stats("ab")
            bits = (stats["transmitted_bytes"] - before) * 8
            assert bits <= rate * (time.monotonic() - began) + frame
            if not stats["on_the_way"]:
                break
        assert bits >= 300 * frame
        assert flow.received() == list(range(300))


def test_queue_drops_packets_beyond_its_limit(link):
    """The transmitter has one packet, ten wait, and all others are lost."""
    with Flow(link) as flow:
        link.set("ab", rate_kbit=0.1, queue_packets=10)
        flow.send(50)
        stats = link.stats("ab")
        assert stats["drops"]["tail"] == 39
        assert stats["queue"]["packets"] == 10
        link.hurry()
        assert flow.received() == list(range(11))


@families
def test_ecn_packets_are_marked_above_the_threshold(link, family):
    """Packets without ECN are lost there."""
    with Flow(link, family) as flow:
        level, option, receive = (
            (socket.IPPROTO_IP, socket.IP_TOS, socket.IP_RECVTOS)
            if family == 4
            else (socket.IPPROTO_IPV6, socket.IPV6_TCLASS, socket.IPV6_RECVTCLASS)
        )
        flow.sink.setsockopt(level, receive, 1)
        link.set("ab", rate_kbit=0.1, red_min=1, red_max=1, ecn=True)
        for kind in (2, 0, 1):  # ECT(0), not ECT, ECT(1)
            flow.source.setsockopt(level, option, kind)
            flow.send(4)
        assert link.stats("ab")["marked"] == 2 + 4
        assert link.stats("ab")["drops"]["red"] == 4
        link.hurry()
        link.settle()
        seen = Counter()
        for _ in range(8):
            _, ancillary, _, _ = flow.sink.recvmsg(2000, 64)
            seen[int.from_bytes(ancillary[0][2], "little")] += 1
        # One was sent at once, and one found an empty queue.
        assert seen == {2: 2, 3: 6}


# ---- chance --------------------------------------------------------------------------------------

CHANCES = {
    "loss": {"loss": 0.03},
    "bursts": {"loss": 0.001, "burst_enter": 0.01, "burst_leave": 0.2, "burst_loss": 0.9},
    "all": {"loss": 0.02, "duplicate": 0.05, "reorder": 0.05, "reorder_distance": 3}
    | {"corrupt": 0.01, "jitter_us": 300, "reorder_delay_s": 100},
}


@pytest.mark.parametrize("kind", CHANCES)
def test_seed_determines_every_draw(link, kind):
    """Each packet's fate matches the prediction for the seed, repeatedly; another seed differs."""
    count, seen = 20_000, []
    with Flow(link) as flow:
        link.set("ab", **CHANCES[kind])
        before = flow.link.stats("ab")
        for seed in (7, 7, 8):
            link.set_seed(seed)
            flow.send(count)
            link.hurry()  # waits for later packets
            after = link.settle()["ab"]
            seen.append(outcome_counters(after, before))
            before = after
            assert seen[-1] == outcome_counters(predict(count, seed, **CHANCES[kind])["ab"])
    assert seen[0] == seen[1] != seen[2]


def test_probabilities_match_their_parameters():
    """Each within five standard deviations, over many seeds."""
    count, share = 50_000, 0.01
    names = ("duplicated", "corrupted", "reordered")
    for seed in range(5):
        asked = {"loss": share, "duplicate": share, "corrupt": share, "reorder": share}
        for way in ("ab", "ba"):
            stats = predict(count, seed, **asked)[way]
            left = count - stats["drops"]["loss"]
            for hits, tries in [(stats["drops"]["loss"], count)] + [
                (stats[name], left) for name in names
            ]:
                assert abs(hits - tries * share) < 5 * math.sqrt(tries * share * (1 - share))


def test_counters_match_the_received_order(link):
    """The receiver gets each packet that is not lost, as many duplicates as are counted, and the
    reordered ones behind three others."""
    count = 5000
    with Flow(link) as flow:
        link.set("ab", duplicate=0.02, reorder=0.02, reorder_distance=3, reorder_delay_s=100)
        flow.send(count)
        link.hurry()
        got, stats = flow.received(), link.stats("ab")
    copies = Counter(got)
    assert set(copies) == set(range(count))
    assert sum(copies.values()) - count == stats["duplicated"] > 0
    first = list(dict.fromkeys(got))
    late = [n for at, n in enumerate(first) if at and n < first[at - 1]]
    # Two adjacent packets may be held together, and have a copy that is not.
    assert stats["reordered"] * 0.7 < len(late) <= stats["reordered"]


@families
def test_checksums_detect_corruption(link_lab, link, family):
    """Each corrupted packet is detected, except in IPv6's own header, which has no checksum."""
    with Flow(link, family) as flow:
        before = link_lab["far"].ns.counters()
        link.set("ab", corrupt=0.2)
        flow.send(2000)
        got, after = flow.received(), link_lab["far"].ns.counters()
        link.set("ab", corrupt=0)
        corrupted = link.stats("ab")["corrupted"]
    name = "UdpInCsumErrors" if family == 4 else "Udp6InCsumErrors"
    assert after[name] > before[name]
    assert len(got) >= 2000 - corrupted
    if family == 4:
        assert len(got) == 2000 - corrupted
        assert after["IpInHdrErrors"] > before["IpInHdrErrors"]
