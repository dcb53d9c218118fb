# SPDX-License-Identifier: Apache-2.0
"""Steelyard's TCP stack and Linux's transfer data to each other over a bad link.

Each row is a link with the effects that must be observed; a row without effects tests nothing.
Every byte is compared at both ends (tests/lab/peer.py).

SY_INTEROP_MB=1000 transfers 1 GB by each connection, four connections per test.
"""

import os
import socket
from dataclasses import dataclass, field

import pytest

from tests.lab.peer import TCP_CONGESTION, megabytes
from tests.lab.wait import within_tries
from tests.wire.interop import families, transfer

HEADERS = {4: 20 + 20 + 12, 6: 40 + 20 + 12}  # with timestamps


@dataclass
class Row:
    """A link, equal in both directions; options of the stack; effects that must be observed."""

    name: str
    link: dict
    seen: object  # a function of the outcome and the family
    options: dict = field(default_factory=dict)
    sysctl: dict = field(default_factory=dict)  # of the kernel; restored from DEFAULTS
    words: dict = field(default_factory=dict)  # of the stack's jobs
    end: dict = field(default_factory=dict)  # of the kernel's
    megabytes: float = 1
    clean: bool = True  # no packet arrives with a wrong checksum
    # Whether an outcome is conclusive. A busy machine may prevent that.
    counts: object = lambda outcome: True

    def __str__(self):
        return self.name


DEFAULTS = {"tcp_ecn": 2, "tcp_sack": 1, "tcp_timestamps": 1, "tcp_window_scaling": 1}


def retransmissions(o):
    """Returns those of both senders."""
    stack = sum(flow.talk["retransmitted"] for flow in o.uploads())
    kernel = sum(flow.end.info["total_retrans"] for flow in o.downloads())
    return stack, kernel


def nothing(o, family):
    assert o.stack["fast"] > 0 and o.stack["bad_checksums"] == 0
    for flow in o.flows:
        assert flow.talk["sack"] and flow.talk["timestamps"] and flow.talk["scale"]
        assert flow.talk["mss"] == 1500 - HEADERS[family]


def lost(o, family):
    assert all(o.link[way]["dropped"] for way in ("ab", "ba"))
    assert all(retransmissions(o)) and o.stack["recoveries"]
    assert o.kernel["TcpExtTCPSackRecovery"] and o.stack["out_of_order"]


def bursts(o, family):
    assert all(o.link[way]["drops"]["burst"] for way in ("ab", "ba"))
    assert all(retransmissions(o))


def reordered(o, family):
    assert o.stack["out_of_order"] and o.kernel["TcpExtTCPOFOQueue"]


def duplicated(o, family):
    assert o.stack["duplicates"] and all(o.link[way]["duplicated"] for way in ("ab", "ba"))
    # The kernel reports duplicates to the stack (D-SACK), and the stack to the kernel.
    assert o.kernel["TcpExtTCPDSACKOldSent"] and o.kernel["TcpExtTCPDSACKRecv"]


def late(o, family):
    for flow in o.uploads():
        assert flow.talk["rtt_us"] >= 20_000
    for flow in o.downloads():
        assert flow.end.info["rtt_us"] >= 20_000


def full(o, family):
    assert all(o.link[way]["drops"]["tail"] for way in ("ab", "ba"))
    assert all(retransmissions(o))


def all_have_ecn(o):
    """A retransmitted SYN requests no ECN, on either side (RFC 3168 6.1.1.1)."""
    return all(flow.talk["ecn"] for flow in o.flows)


def marked(o, family):
    assert all(o.link[way]["marked"] for way in ("ab", "ba"))
    assert o.stack["ecn_reduced"]
    assert o.kernel["IpExtInCEPkts" if family == 4 else "Ip6InCEPkts"]
    assert sum(flow.end.info["delivered_ce"] for flow in o.downloads())


def corrupted(o, family):
    assert o.stack["bad_checksums"] and o.kernel["TcpInCsumErrors"]
    assert all(retransmissions(o))


def narrowed(o, family):
    assert o.stack["too_big"]
    for flow in o.uploads():
        assert flow.talk["mss"] == 1300 - HEADERS[family]
    for flow in o.downloads():
        assert flow.end.info["pmtu"] == 1300


def without(option, *more):
    def seen(o, family):
        assert not any(flow.talk[option] for flow in o.flows)
        for one in more:
            one(o, family)

    return seen


def resent(o, family):
    assert all(retransmissions(o))


def no_window_above_64k(o, family):
    assert not any(flow.talk["scale"] for flow in o.flows)
    assert all(flow.talk["peer_window"] <= 65535 for flow in o.flows)


def small_segments(o, family):
    lost(o, family)
    for flow in o.uploads():
        assert flow.talk["mss"] == 536 - 12
    for flow in o.downloads():
        assert flow.end.info["snd_mss"] == 536 - 12


def small_buffers(o, family):
    for flow in o.uploads():
        # The buffer limits the bytes in flight: a round trip takes 10 ms.
        assert flow.talk["window"] < 40_000
    for flow in o.downloads():
        assert flow.talk["receive_window"] <= 12_000


LOSSY = {"delay_us": 500, "loss": 0.02}
ALL_BAD = {"delay_ms": 2, "jitter_ms": 2, "loss": 0.01, "duplicate": 0.02}
ALL_BAD |= {"reorder": 0.05, "reorder_distance": 5}
QUEUE = {"rate_mbit": 100, "delay_ms": 2, "queue_packets": 40}
MARKING = {"rate_mbit": 100, "delay_ms": 2, "queue_packets": 1000, "ecn": True}
MARKING |= {"red_min": 20_000, "red_max": 200_000, "red_probability": 0.2}
NARROW = {"delay_us": 200, "mtu": 1300, "router4": "10.9.9.9", "router6": "fd00:9::9"}

ROWS = [
    Row("good", {}, nothing, megabytes=3),
    Row("loss", LOSSY, lost),
    Row(
        "bursts",
        {"delay_us": 500, "burst_enter": 0.008, "burst_leave": 0.5, "burst_loss": 1},
        bursts,
    ),
    Row("reordering", {"delay_us": 500, "reorder": 0.1, "reorder_distance": 7}, reordered),
    Row("copies", {"delay_us": 500, "duplicate": 0.1}, duplicated),
    Row("delay", {"delay_ms": 10, "jitter_ms": 5}, late),
    Row("free-jitter", {"delay_ms": 1, "jitter_ms": 5, "order": "free"}, reordered),
    Row("short-queue", QUEUE, full, megabytes=2),
    Row("short-queue-newreno", QUEUE, full, {"congestion": "newreno"}, megabytes=2),
    Row(
        "marks",
        MARKING,
        marked,
        {"ecn": True},
        {"tcp_ecn": 1},
        megabytes=2,
        counts=all_have_ecn,
    ),
    Row("flipped-bits", {"delay_us": 500, "corrupt": 0.02}, corrupted, clean=False),
    Row("narrow", NARROW, narrowed),
    Row("everything", ALL_BAD, lost),
    Row("kernel-reno", LOSSY, lost, end={"congestion": "reno"}),
    Row("kernel-bbr", LOSSY, lost, end={"congestion": "bbr"}),
    Row("small-segments", LOSSY, small_segments, words={"mss": 536}, megabytes=0.5),
    Row(
        "small-buffers",
        {"delay_ms": 5},
        small_buffers,
        words={"send_buffer": 12_000, "receive_buffer": 12_000},
        megabytes=0.3,
    ),
    Row("acknowledged-at-once", LOSSY, lost, words={"quick_ack": True, "no_delay": True}),
    Row("stack-without-sack", LOSSY, without("sack", resent), {"no_sack": True}),
    Row(
        "stack-without-timestamps",
        LOSSY,
        without("timestamps", lost),
        {"no_timestamps": True},
    ),
    Row("stack-without-scale", LOSSY, no_window_above_64k, {"no_scale": True}),
    Row("kernel-without-sack", LOSSY, without("sack", resent), {}, {"tcp_sack": 0}),
    Row(
        "kernel-without-timestamps",
        LOSSY,
        without("timestamps", lost),
        {},
        {"tcp_timestamps": 0},
    ),
    Row("kernel-without-scale", LOSSY, no_window_above_64k, {}, {"tcp_window_scaling": 0}),
    Row(
        "neither-option",
        LOSSY,
        without("sack", resent),
        {"no_sack": True, "no_timestamps": True, "no_scale": True},
        {"tcp_sack": 0, "tcp_timestamps": 0, "tcp_window_scaling": 0},
    ),
]
# Stacks with other options are other processes: neighbour entries are shared.
ROWS.sort(key=lambda row: str(sorted(row.options.items())))


def need_congestion(interop, name):
    with interop.kernel.socket() as one:
        try:
            one.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name.encode())
        except OSError:
            pytest.skip(f"this kernel has no {name}")


@families
@pytest.mark.parametrize("row", ROWS, ids=str)
def test_transfers_over_a_bad_link_arrive_whole(interop, row, family):
    """The stack as client and as server, upload and download, all at once."""
    need_congestion(interop, row.end.get("congestion", "cubic"))
    peer = interop.peer(**row.options)
    size = megabytes(row.megabytes)
    for name, value in row.sysctl.items():
        interop.kernel.sysctl(f"ipv4.{name}", value)
    interop.link.set(**row.link)
    limit = 120 if size < 1e8 else 3600

    def carried():
        one = transfer(interop, peer, family, size, row.words, deadline_s=limit, **row.end)
        return one if row.counts(one) else None

    try:
        outcome = within_tries(3, carried, "a transfer that counts")
    finally:
        for name in row.sysctl:
            interop.kernel.sysctl(f"ipv4.{name}", DEFAULTS[name])
    if os.environ.get("SY_INTEROP_MB"):
        print(row, family, outcome.stack, retransmissions(outcome))
    if row.clean:
        assert outcome.kernel["TcpInCsumErrors"] == outcome.stack["bad_checksums"] == 0
    assert outcome.stack["timed_out"] == 0
    row.seen(outcome, family)
