# SPDX-License-Identifier: Apache-2.0
"""Shaping with real traffic: packets wait for the port's rate, and the high class goes first.

In any interval, at most the rate's amount plus one burst leaves, at every speed of the machine. The
minimum is checked in an interval in which neither senders nor workers were delayed."""

import contextlib
import time

import pytest

from tests.lab import Server, Service
from tests.lab.clients import http_get
from tests.lab.datagrams import Sender, Sink, send
from tests.lab.process import CommandFailed
from tests.lab.steelyard import VIP, WEB
from tests.lab.wait import wait_until

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
SINK, SERVER_SINK = 9, 9009
BULK, VOICE = 1, 2
EF = 46 << 2


class Shaping:
    """The stage's shaping, and UDP services whose servers only count: gold and other."""

    def __init__(self, stage, stack):
        self.stage, self.sinks = stage, {}
        for family in (4, 6):
            for name, host, port in (("gold", "s1", SINK), ("other", "s2", SINK + 1)):
                servers = [Server(stage.lab[host].address(family), SERVER_SINK)]
                stage.config.services.append(
                    Service(f"{name}{family}", VIP[family], port, "udp", servers=servers)
                )
                sink = Sink(stage.lab[host], SERVER_SINK, family)
                self.sinks[name, family] = stack.enter_context(sink)

    def apply(self, *ports, tenants=()):
        self.stage.config.shaping = list(ports)
        self.stage.config.tenants = list(tenants)
        return self.stage.apply()

    def read(self):
        """Returns the port's counters, and those of each queue by (tenant, service, class)."""
        (stats,) = self.stage.steelyard.api.call("ListShaping").ports
        queues = {}
        for n in stats.counts:
            tenant = stats.shaping.tenants[n.tenant]
            name = tenant.services[n.service].name
            # "class" is a keyword of Python.
            number = getattr(n, "class")
            queues[tenant.name, name, stats.shaping.classes[number].name] = n
        return stats, queues

    def queue(self, *name):
        return self.read()[1].get(name)


@pytest.fixture
def shaping(stage):
    with contextlib.ExitStack() as stack:
        yield Shaping(stage, stack)


def port(name, rate, burst=20_000, **more):
    return {"port": name, "rate": rate, "burst": f"{burst}B", "count": "l2"} | more


class Rate:
    """Lower and upper bounds of some counters' rate in bit/s between two readings."""

    def __init__(self, read):
        self.read = read
        self.before, self.bytes, self.after = self.look()

    def look(self):
        before = time.monotonic()
        return before, self.read(), time.monotonic()

    def since(self):
        before, now, after = self.look()
        sent = 8 * (now - self.bytes)
        return sent, before - self.after, after - self.before


def reaches(read, rate, share=0.02):
    """Waits for two seconds in which the rate was the expected one."""

    def good():
        first = Rate(read)
        wait_until(lambda: first.since()[1] > 2, "two seconds pass")
        sent, least, most = first.since()
        return sent >= (1 - share) * rate * least and sent <= (1 + share) * rate * most

    wait_until(good, f"{rate} bit/s leave")


@pytest.mark.drops("shaping-full")
@families
def test_a_port_keeps_its_rate_and_the_high_class_goes_first(shaping, family):
    stage, rate = shaping.stage, 8_000_000
    shaping.apply(
        port(
            "back",
            rate,
            burst=200_000,
            classes=[
                # Capacity for packets that a busy machine delays.
                {"name": "voice", "dscp": ["ef"], "priority": 0, "queue": 1000},
                {"name": "bulk", "queue": 300},
            ],
        )
    )
    sink = shaping.sinks["gold", family]
    first = Rate(lambda: sink.bytes[BULK] + sink.bytes[VOICE])
    with Sender(stage.client, VIP[family], SINK, tag=BULK, rate=2000):
        wait_until(lambda: stage.accounting.dropped().get("shaping-full"), "the queue is full")
        high = {"tag": VOICE, "rate": 100, "size": 200, "kind": EF}
        with Sender(stage.client, VIP[family], SINK, **high):
            wait_until(lambda: sink.packets[VOICE] >= 300, "the high class comes")
        reaches(lambda: sink.bytes[BULK] * 1014 // 1000, rate)
    sent, _, most = first.since()
    assert sent <= 1.01 * rate * most + 8 * 200_000
    wait_until(lambda: not shaping.read()[0].waiting, "the queue is empty")
    _, queues = shaping.read()
    bulk = queues["", "", "bulk"]
    assert queues["", "", "voice"].dropped_full == 0
    assert bulk.dropped_full == stage.accounting.dropped()["shaping-full"]
    sent = bulk.sent_packets
    # The rate was that of the arrivals; a busy machine may have lost some of them on the way.
    wait_until(
        lambda: sink.packets[BULK] >= sent / 2,
        lambda: f"what was sent has arrived: {sink.packets[BULK]} of {sent}",
    )
    assert sink.packets[BULK] <= sent


@pytest.mark.drops("shaping-full")
@families
def test_tenants_and_services_get_their_rates(shaping, family):
    stage, gold, other = shaping.stage, f"gold{family}", f"other{family}"
    shaping.apply(
        port(
            "back",
            "8M",
            burst=200_000,
            tenants=[{"tenant": "acme", "guaranteed": "6M"}],
            services=[{"service": gold, "maximum": "5M"}],
        ),
        tenants=[{"name": "acme", "services": [gold]}],
    )
    sinks = [shaping.sinks["gold", family], shaping.sinks["other", family]]
    with (
        Sender(stage.client, VIP[family], SINK, tag=BULK, rate=1500),
        Sender(stage.client, VIP[family], SINK + 1, tag=BULK, rate=1500),
    ):
        for sink, rate in zip(sinks, (5_000_000, 3_000_000), strict=True):
            reaches(lambda sink=sink: sink.bytes[BULK] * 1014 // 1000, rate)
    assert shaping.queue("acme", gold, "default").dropped_full > 0
    assert shaping.queue("", "", "default").dropped_full > 0
    assert other not in str(shaping.read()[1])
    wait_until(lambda: not shaping.read()[0].waiting, "the queues are empty")


@families
def test_changes_lose_no_packet(shaping, family):
    """Queued packets leave at the next rate; without shaping, at once."""
    stage, sink = shaping.stage, shaping.sinks["gold", family]
    sent = 0
    for rate in ("16k", "32k", "20M", "16k"):
        shaping.apply(port("back", rate))
        sent += send(stage.client, VIP[family], SINK, 50, tag=BULK, rate=500)
        wait_until(
            lambda sent=sent: shaping.read()[0].waiting + sink.packets[BULK] >= sent,
            "all packets wait, or have left",
        )
    assert shaping.read()[0].waiting > 0
    shaping.apply()
    wait_until(lambda: sink.packets[BULK] == sent, "all have arrived")


@families
def test_download_through_a_shaped_port_completes(shaping, family):
    """TCP in both directions, while rates change."""
    stage, size = shaping.stage, 3_000_000
    for host in stage.lab.servers():
        (stage.lab.dir / f"nginx-{host}/files/shaped").write_bytes(bytes(size))
    began = time.monotonic()
    shaping.apply(
        port("front", "20M", classes=[{"name": "all", "queue": 1000}]), port("back", "20M")
    )
    assert len(http_get(stage.client, VIP[family], WEB, "/files/shaped", timeout_s=60)) == size
    took = time.monotonic() - began
    assert took >= 8 * size / 20e6 - 0.1, "no faster than the rate"
    for rate in ("200M", "50M"):
        # Another class, and capacity for a sender's window on a busy machine.
        shaping.apply(port("front", rate, classes=[{"name": "rest", "queue": 1000}]))
        assert len(http_get(stage.client, VIP[family], WEB, "/files/shaped", timeout_s=60)) == size


def test_upgrade_and_restart_keep_shaping(shaping):
    """Queued packets leave before the successor starts, which shapes like its predecessor."""
    stage, sink = shaping.stage, shaping.sinks["gold", 4]
    shaping.apply(port("back", "16k"))
    sent = send(stage.client, VIP[4], SINK, 30, tag=BULK, rate=500)
    wait_until(lambda: shaping.read()[0].waiting + sink.packets[BULK] >= sent, "they wait")
    stage.steelyard.upgrade()
    wait_until(lambda: sink.packets[BULK] == sent, "all have arrived")
    stats, _ = shaping.read()
    assert stats.active
    assert stats.shaping.rate == 16_000
    sent += send(stage.client, VIP[4], SINK, 30, tag=BULK, rate=500)
    wait_until(lambda: shaping.read()[0].waiting > 5, "they wait again")
    stage.config.shaping = []
    stage.apply()
    wait_until(lambda: sink.packets[BULK] == sent, "all have arrived")


def test_missing_port_is_reported(shaping):
    shaping.apply(port("nowhere", "1M"))
    stats, _ = shaping.read()
    assert not stats.active
    steelyard = shaping.stage.steelyard
    assert "no such port" in steelyard.cli("get", "shaping")

    def warned():
        said = steelyard.get("status")["warnings"]
        return any("shaping of port nowhere has no effect" in one for one in said)

    assert warned()
    shaping.apply()
    assert not warned()


def test_invalid_shaping_is_refused(shaping):
    with pytest.raises(CommandFailed, match='no tenant "acne": did you mean acme?'):
        shaping.apply(
            port("back", "1M", tenants=[{"tenant": "acne"}]),
            tenants=[{"name": "acme", "services": ["gold4"]}],
        )
