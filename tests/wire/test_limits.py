# SPDX-License-Identifier: Apache-2.0
"""Limits with real traffic: exactly the rate plus the burst passes.

Credit is conserved: while a sender keeps a bucket from filling up, the packets that pass between
two times equal the credit added, and the bucket's decrease. This holds at every speed of the
machine."""

import contextlib
import json
import socket
import time

import pytest

from tests.lab import Server, Service
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.datagrams import Sender, Sink, send
from tests.lab.process import CommandFailed
from tests.lab.servers import DatagramEcho
from tests.lab.steelyard import VIP, WEB
from tests.lab.wait import wait_until
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
by_device = pytest.mark.parametrize("engine", ("auto", "atomic"))
SINK, SERVER_SINK = 9, 9009
MEGABYTE = 1_000_000
NOISY, POLITE = 1, 2


class Limits:
    """The stage's limits, and UDP services whose server only counts: sink4 and sink6 on s1, quiet4
    and quiet6 on s2."""

    def __init__(self, stage, stack):
        self.stage, self.sinks, self.quiet = stage, {}, {}
        for family in (4, 6):
            for name, host, port, sinks in (
                ("sink", stage.lab["s1"], SINK, self.sinks),
                ("quiet", stage.lab["s2"], SINK + 1, self.quiet),
            ):
                servers = [Server(host.address(family), SERVER_SINK)]
                service = Service(f"{name}{family}", VIP[family], port, "udp", servers=servers)
                stage.config.services.append(service)
                sinks[family] = stack.enter_context(Sink(host, SERVER_SINK, family))

    def apply(self, *limits, tenants=()):
        self.stage.config.limits = list(limits)
        self.stage.config.tenants = list(tenants)
        return self.stage.apply()

    def read(self, name, worst=0):
        (info,) = self.stage.steelyard.api.call("ListLimits", name=name, worst=worst).limits
        return info.stats

    def send(self, family, count, host=None, port=SINK, **options):
        return send(host or self.stage.client, VIP[family], port, count, **options)

    def settled(self, name, sent):
        """Returns the counters once they include all packets sent."""

        def complete():
            stats = self.read(name)
            return stats.passed.packets + stats.above.packets >= sent and stats

        return wait_until(complete, f"limit {name} has counted {sent} packets")


@pytest.fixture
def limits(stage):
    with contextlib.ExitStack() as stack:
        yield Limits(stage, stack)


def bits(name, per_second, burst, **more):
    return {"name": name, "bits_per_second": per_second, "burst": f"{burst}B"} | more


def packets(name, per_second, burst, **more):
    return {"name": name, "packets_per_second": per_second, "burst": burst} | more


class Sample:
    """Counters with the times before and after they were read."""

    SHARP_S = 0.01

    def __init__(self, limits, name):
        def sharp():
            self.before = time.monotonic()
            self.stats = limits.read(name)
            self.after = time.monotonic()
            return self.after - self.before <= self.SHARP_S

        wait_until(sharp, f"the agent answers within {self.SHARP_S} s")


def check_rate(first, last, rate):
    """Between two samples, the passed amount equals the rate's credit and the bucket's decrease."""
    passed = last.stats.passed.bytes - first.stats.passed.bytes
    taken = first.stats.left - last.stats.left
    assert passed <= 1.001 * rate * (last.after - first.before) + taken
    assert passed >= 0.999 * rate * (last.before - first.after) + taken


# ---- rates ---------------------------------------------------------------------------------------


@pytest.mark.drops("limit-exceeded")
@by_device
@families
def test_sender_gets_exactly_its_rate(limits, family, engine):
    stage, sink, rate = limits.stage, limits.sinks[family], MEGABYTE  # bytes per second
    limits.apply(
        bits(
            "held", "8M", MEGABYTE, service=f"sink{family}", direction="to-servers", engine=engine
        ),
        bits("neighbour", "8M", MEGABYTE, service=f"quiet{family}", engine=engine),
    )
    with Sender(stage.client, VIP[family], SINK, tag=NOISY, rate=2500) as sender:
        quiet = limits.send(family, 100, port=SINK + 1, tag=POLITE, rate=200)
        wait_until(lambda: limits.read("held").above.packets, "the bucket is empty")
        first = Sample(limits, "held")
        enough = first.stats.passed.bytes + 3 * rate // 2
        wait_until(lambda: sink.bytes[NOISY] >= enough, "much has arrived")
        last = Sample(limits, "held")
    check_rate(first, last, rate)
    stats = limits.settled("held", sender.sent)
    wait_until(lambda: sink.bytes[NOISY] >= stats.passed.bytes, "all has arrived")
    assert sink.bytes[NOISY] == stats.passed.bytes, "the receiver has what the limit let pass"
    assert stats.above.packets == stage.accounting.dropped()["limit-exceeded"]
    assert stats.above.bytes == 1000 * stats.above.packets
    calm = limits.settled("neighbour", quiet)
    assert (calm.passed.packets, calm.above.packets) == (quiet, 0), "a neighbour loses nothing"


@pytest.mark.drops("limit-exceeded")
@by_device
@families
def test_download_gets_exactly_its_rate(limits, family, engine):
    size, rate, burst = 3 * MEGABYTE, 2 * MEGABYTE, MEGABYTE // 4
    stage = limits.stage
    for host in stage.lab.servers():
        (stage.lab.dir / f"nginx-{host}/files/limited").write_bytes(bytes(size))
    began = time.monotonic()
    download = {"service": f"web{family}", "direction": "to-clients", "engine": engine}
    limits.apply(bits("download", "16M", burst, **download))
    body = http_get(stage.client, VIP[family], WEB, "/files/limited", timeout_s=60)
    stats = limits.read("download")
    took = time.monotonic() - began
    assert body == bytes(size)
    assert stats.passed.bytes >= size
    assert stats.passed.bytes <= 1.001 * (rate * took + burst - stats.left)


@pytest.mark.drops("session-rate")
@families
def test_limit_of_new_sessions_refuses_the_excess(limits, family):
    stage = limits.stage
    limit = {"name": "begun", "service": f"echo{family}", "new_sessions_per_second": 1, "burst": 5}
    limits.apply(limit)
    with contextlib.ExitStack() as stack:
        accepted = []
        for _ in range(100):
            try:
                one = connect(stage.client, VIP[family], ECHO, timeout_s=0.2)
            except TimeoutError:
                if stage.accounting.dropped().get("session-rate"):
                    break
                continue  # a slow answer
            accepted.append(stack.enter_context(one))
        else:
            pytest.fail("none of 100 connections was refused")
        assert len(accepted) >= 5
        for one in accepted:
            one.sendall(b"x")
            assert receive_exactly(one, 1) == b"x", "sessions that have begun go on"
        assert http_get(stage.client, VIP[family], WEB), "another service is not limited"
    stats = limits.read("begun")
    assert stats.passed.packets >= 5 and stats.passed.bytes == 0
    assert stats.above.packets == stage.accounting.dropped()["session-rate"]


# ---- what counts ---------------------------------------------------------------------------------


def test_direction_selects_what_is_charged(limits):
    stage = limits.stage
    s3 = stage.lab["s3"]
    echo = Service("echo-udp", VIP[4], 7, "udp", servers=[Server(s3.address(4), SERVER_SINK)])
    stage.config.services.append(echo)
    server = DatagramEcho(s3, SERVER_SINK)
    try:
        expected = {"both": 20, "to-servers": 10, "to-clients": 10}
        limits.apply(
            *(packets(way, 1000, 1000, service="echo-udp", direction=way) for way in expected)
        )
        with stage.client.ns.socket(kind=socket.SOCK_DGRAM) as one:
            one.settimeout(60)
            for _ in range(10):
                one.sendto(b"x", (VIP[4], 7))
                assert one.recv(10) == b"x"
        assert {way: limits.read(way).passed.packets for way in expected} == expected
    finally:
        server.close()


@pytest.mark.drops("limit-exceeded")
@families
def test_refused_packet_charges_no_other_limit(limits, family):
    """For each target."""
    host = limits.stage.lab["s1"]
    server = {"service": f"sink{family}", "address": host.address(family), "port": SERVER_SINK}
    loose = {
        "service": {"service": f"sink{family}"},
        "services": {"services": [f"sink{family}", f"quiet{family}"]},
        "vip": {"vip": VIP[family]},
        "server": {"server": server},
        "tenant": {"tenant": "acme"},
        "all": {},
        "clients": {"clients": {}},
    }
    tenants = [
        {"name": "acme", "services": ["web4"], "vips": [VIP[family]]},
        {"name": "other", "services": [f"quiet{family}"]},
    ]
    limits.apply(
        packets("tight", 1, 10, service=f"sink{family}", direction="to-servers"),
        packets("other", 1, 10, tenant="other"),
        *(packets(name, 1000, 1000, direction="to-servers", **of) for name, of in loose.items()),
        tenants=tenants,
    )
    before = limits.sinks[family].packets[NOISY]
    sent = limits.send(family, 100, tag=NOISY)
    tight = limits.settled("tight", sent)
    assert tight.above.packets and tight.passed.packets >= 10
    wait_until(
        lambda: limits.sinks[family].packets[NOISY] - before == tight.passed.packets,
        "what passed has arrived",
    )
    for name in loose:
        stats = limits.read(name)
        assert (stats.passed.packets, stats.above.packets) == (tight.passed.packets, 0), name
    assert limits.read("other").passed.packets == 0


@families
def test_exceeding_packets_are_marked(limits, family):
    ect = 2  # ECN is unchanged
    sink = limits.sinks[family]
    mark = {"action": {"mark": "af13"}, "direction": "to-servers"}
    limits.apply(packets("marks", 1, 10, service=f"sink{family}", **mark))
    sent = limits.send(family, 50, tag=NOISY, kind=ect)
    stats = limits.settled("marks", sent)
    wait_until(lambda: sink.packets[NOISY] == sent, "all have arrived")
    classes = {kind: n for (tag, kind), n in sink.classes.items() if tag == NOISY}
    assert classes == {ect: stats.passed.packets, 14 << 2 | ect: stats.above.packets}
    assert stats.passed.packets >= 10


# ---- operation -----------------------------------------------------------------------------------


@pytest.mark.drops("limit-exceeded")
@families
def test_noisy_client_is_listed(limits, family):
    stage, sink = limits.stage, limits.sinks[family]
    each = {"service": f"sink{family}", "direction": "to-servers"}
    limits.apply(packets("each", 1, 20, clients={"max_clients": 1000}, **each))
    far = stage.lab["far"]
    sent = limits.send(family, 300, host=far, tag=NOISY)
    sent += limits.send(family, 20, tag=POLITE)
    stats = limits.settled("each", sent)
    wait_until(lambda: sink.packets[POLITE] == 20, "the polite client loses nothing")
    length = 32 if family == 4 else 64
    noisy = far.address(family) if family == 4 else "fd00:9::"
    (row,) = json.loads(stage.steelyard.cli("get", "limits", "--worst", "-o", "json"))
    (worst,) = row["clients"]["worst"]
    assert worst["network"] == f"{noisy}/{length}"
    assert worst["above"]["packets"] == stats.above.packets == 300 - sink.packets[NOISY]
    text = stage.steelyard.cli("describe", "limit", "each")
    assert f"{noisy}/{length}" in text and "2 of at most 1000 buckets are in use" in text
    assert not stats.unlimited.packets


@pytest.mark.drops("limit-exceeded")
def test_change_of_rate_keeps_credit(limits):
    stage = limits.stage
    limits.apply(packets("live", 1, 100, service="sink4"))
    sent = limits.send(4, 60)
    before = limits.settled("live", sent)
    began = time.monotonic()
    assert before.passed.packets == 60 and before.left < 100
    limits.stage.config.limits = [packets("live", 2, 100, service="sink4")]
    file = stage.lab.dir / "next.yaml"
    file.write_text(stage.config.text())
    with pytest.raises(CommandFailed, match="rate 1 packets/s -> 2 packets/s"):
        stage.steelyard.cli("diff", file)
    limits.apply(packets("live", 2, 100, service="sink4"))
    now = limits.read("live")
    assert now.passed.packets == 60, "the counters go on"
    assert before.left <= now.left <= before.left + 2 * (time.monotonic() - began) + 1
    limits.apply(packets("live", 1, 10, service="sink4"))
    assert limits.read("live").left <= 10
    limits.apply(packets("live", 1_000_000, 10_000, service="sink4"))
    wait_until(lambda: limits.read("live").left == 10_000, "the new rate fills the bucket")
    assert limits.settled("live", sent + limits.send(4, 200)).passed.packets == 260
    limits.apply()
    with pytest.raises(CommandFailed, match="no limit named"):
        limits.read("live")


@pytest.mark.drops("limit-exceeded")
@pytest.mark.parametrize("engine", ("auto", "cas", "lock", "light-lock", "atomic"))
def test_engines_pass_the_rate(limits, engine):
    stage = limits.stage
    limits.apply(packets("one", 1, 50, service="sink4", engine=engine))
    began = time.monotonic()
    stats = limits.settled("one", limits.send(4, 200))
    took = time.monotonic() - began
    forced = {"auto": "cas"}.get(engine, engine)
    assert stats.engine == ("own" if stage.workers == 1 else forced)
    assert stats.why
    # One worker owns the flow, so no packet waits in another worker's batch.
    assert 50 <= stats.passed.packets <= 51 + took


@pytest.mark.drops("limit-exceeded")
@pytest.mark.parametrize("model", ("atomic", "ordered", "unordered", "direct"))
def test_event_models_pass_the_rate_across_an_upgrade(limits, model):
    """With another event device and each queue model: limits are exact, TCP works, and an upgrade
    loses no packet inside the device."""
    stage, body = limits.stage, bytes(MEGABYTE)
    for host in stage.lab.servers():
        (stage.lab.dir / f"nginx-{host}/files/limited").write_bytes(body)
    device = ("--event-device", "event_sw", "--event-model", model)
    in_force = {"atomic": "atomic", "direct": "atomic"}.get(model, "cas")
    try:
        stage.steelyard.upgrade(options=device)
        stage.steelyard.wait_reconnected()
        limits.apply(
            packets("one", 1, 50, service="sink4", engine="atomic"),
            bits("plenty", "1G", 10 * MEGABYTE, service="web4", engine="atomic"),
        )
        began = time.monotonic()
        stats = limits.settled("one", limits.send(4, 200))
        assert 50 <= stats.passed.packets <= 51 + time.monotonic() - began
        assert stats.engine == ("own" if stage.workers == 1 else in_force)
        assert http_get(stage.client, VIP[4], WEB, "/files/limited", timeout_s=60) == body
        stats = limits.read("plenty")
        assert stats.passed.bytes >= len(body) and stats.above.packets == 0
        with connect(stage.client, VIP[4], ECHO) as one:
            stage.steelyard.upgrade()
            stage.steelyard.wait_reconnected()
            one.sendall(b"x")
            assert receive_exactly(one, 1) == b"x"
        assert limits.read("one").engine == stats.engine
    finally:
        stage.steelyard.restart_forwarder()
        stage.steelyard.wait_reconnected()


def test_limits_survive_a_restart(limits):
    stage = limits.stage
    kept = packets("kept", 5, 50, service="sink4", clients={"prefix4": 24})
    limits.apply(kept, bits("full", "8k", MEGABYTE, service="sink4"))
    limits.settled("full", limits.send(4, 20))
    assert limits.read("full").left < MEGABYTE
    stage.steelyard.restart_forwarder()
    stage.steelyard.wait_reconnected()
    assert limits.read("kept").limit.clients.prefix4 == 24
    assert limits.read("full").left == MEGABYTE, "buckets are full after a restart"
