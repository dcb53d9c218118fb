# SPDX-License-Identifier: Apache-2.0
"""Causes of past outages: neighbours without an announcement, a recreated interface, a larger MTU,
a stopped forwarder that still owned addresses."""

import os
import signal

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.steelyard import SERVER_WEB, VIP, WEB
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
NEW_VIP = {4: "10.0.0.81", 6: "fd00::81"}
LOCAL = {4: "10.1.0.200", 6: "fd00:1::200"}
STRANGER = "02:00:00:00:00:99"


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def outage_stage(request):
    with Stage(workers=request.param, checked=False) as stage:
        yield stage


@pytest.fixture
def outage(outage_stage, request):
    yield from check_accounting(outage_stage, request)


def works(stage, family):
    try:
        return http_get(stage.client, VIP[family], WEB, timeout_s=1)
    except OSError:
        return None


def echo(one, text):
    one.sendall(text)
    assert receive_exactly(one, len(text)) == text


# ---- announcements -------------------------------------------------------------------------------


def remember(host, address, mac=STRANGER):
    """Adds a neighbour entry, as if another balancer had the address."""
    host.ns.ip(f"neigh replace {address} lladdr {mac} dev eth0 nud reachable")


def wait_learned(host, address, mac):
    """Waits without sending a packet."""
    wait_until(
        lambda: mac in host.ns.ip(f"neigh show {address} dev eth0"),
        f"{host} knows that {address} has moved",
    )


@families
def test_new_vip_is_announced(outage, family):
    mac = outage.lab["forwarder"].ns.mac("front")
    for name in ("client", "router"):
        remember(outage.lab[name], NEW_VIP[family])
    servers = [Server(outage.lab["s1"].address(family), SERVER_WEB)]
    outage.config.services.append(Service("new", NEW_VIP[family], WEB, servers=servers))
    outage.apply()
    for name in ("client", "router"):
        wait_learned(outage.lab[name], NEW_VIP[family], mac)


@families
def test_started_forwarder_announces_its_addresses(outage, family):
    """Another node may have had them."""
    ns = outage.lab["forwarder"].ns
    outage.steelyard.forwarder.stop()
    remember(outage.client, VIP[family])
    remember(outage.lab["s1"], LOCAL[family])
    outage.steelyard.start_forwarder()
    wait_learned(outage.client, VIP[family], ns.mac("front"))
    wait_learned(outage.lab["s1"], LOCAL[family], ns.mac("back"))
    outage.steelyard.wait_reconnected()


@pytest.mark.drops("port-down", "no-route", "no-neighbour", "neighbour-queue", "no-session")
@families
def test_port_that_comes_up_announces_its_addresses(outage, family):
    switch = outage.lab["switch"].ns
    switch.ip("link set forwarder-front down")
    remember(outage.client, VIP[family])
    switch.ip("link set forwarder-front up")
    wait_learned(outage.client, VIP[family], outage.lab["forwarder"].ns.mac("front"))


# ---- release -------------------------------------------------------------------------------------


@pytest.mark.drops("no-session", "no-neighbour", "neighbour-queue")
@families
def test_released_addresses_move_to_another_node(outage, family):
    """A stopped forwarder keeps its state; a released one keeps only its sessions."""
    ns = outage.lab["forwarder"].ns
    with connect(outage.client, VIP[family], ECHO, timeout_s=20) as one:
        echo(one, b"before")
        outage.steelyard.forwarder.stop()
        assert ns.run(["bpftool", "net", "show"]).count("front")
        released = outage.steelyard.release()
        assert VIP[family] in released
        assert not ns.run(["bpftool", "net", "show"]).count("front")
        outage.client.ns.ip(f"neigh flush to {VIP[family]} dev eth0")
        with pytest.raises(OSError):
            connect(outage.client, VIP[family], WEB, timeout_s=2)
        assert "lladdr" not in outage.client.ns.ip(f"neigh show {VIP[family]}")
        outage.steelyard.release()  # a second release has nothing to do and succeeds
        outage.steelyard.start_forwarder()
        echo(one, b"after")
    outage.steelyard.wait_reconnected()


def test_release_refuses_a_live_forwarder(outage):
    done = outage.lab["forwarder"].ns.run(outage.steelyard.forwarder_argv("--release"), check=False)
    assert done.returncode > 0
    assert "in use by another forwarder" in done.stderr
    assert works(outage, 4)


# ---- an interface that is created again ----------------------------------------------------------


def port(stage, name):
    return next(port for port in stage.steelyard.get("ports") if port["name"] == name)


def delete(stage, name):
    stage.lab["forwarder"].ns.ip(f"link del {name}")


def make_again(stage, name, net):
    network, host = stage.lab.network, stage.lab["forwarder"]
    network.plug(host, name, name, net, 1, network.queues)
    if name == "front":
        host.ns.ip("route replace 10.9.0.0/24 via 10.0.0.2")
        host.ns.ip("route replace fd00:9::/64 via fd00::2")


GONE = (
    "port-down",
    "other-host",
    "no-route",
    "no-neighbour",
    "neighbour-queue",
    "no-session",
    "tx-full",
)


@pytest.mark.drops(*GONE)
@pytest.mark.parametrize("name", ("front", "back"))
def test_recreated_interface_is_reattached(outage, name):
    """With the existing sessions."""
    kept = {f: connect(outage.client, VIP[f], ECHO, timeout_s=30) for f in (4, 6)}
    for times in range(3):
        for one in kept.values():
            echo(one, b"before")
        delete(outage, name)
        wait_until(lambda: port(outage, name)["problem"], "the port's problem is shown")
        assert not port(outage, name)["up"]
        status = outage.steelyard.get("status")["forwarder"]
        assert any(name in text for text in status["port_problems"])
        assert name in outage.steelyard.cli("get", "status")
        if times == 1:  # work continues meanwhile
            one = kept[4]
            one.sendall(b"lost")
        make_again(outage, name, 0 if name == "front" else 1)
        wait_until(lambda: port(outage, name)["up"], "the port is up again")
        assert not port(outage, name)["problem"]
        assert not outage.steelyard.get("status")["forwarder"]["port_problems"]
        if times == 1:
            assert receive_exactly(one, 4) == b"lost"
        for one in kept.values():
            echo(one, b"after")
    for one in kept.values():
        one.close()
    for family in (4, 6):
        wait_until(lambda f=family: works(outage, f), "new connections")
    ns = outage.lab["forwarder"].ns
    assert len(list(pins(ns))) == 2


def pins(ns):
    return [
        name for name in os.listdir("/sys/fs/bpf/steelyard") if name.startswith(f"{ns.inode()}-")
    ]


# ---- jumbo frames --------------------------------------------------------------------------------


def set_mtu(stage, mtu):
    switch, ns = stage.lab["switch"].ns, stage.lab["forwarder"].ns
    for name in ("front", "back"):
        ns.ip(f"link set {name} mtu {mtu}")
        switch.ip(f"link set forwarder-{name} mtu {mtu}")
    for host in [stage.client, *stage.lab.servers()]:
        net = "front" if host is stage.client else "back"
        switch.ip(f"link set {host}-eth0 mtu {mtu}")
        switch.ip(f"link set br-{net} mtu {mtu}")
        host.ns.ip(f"link set eth0 mtu {mtu}")


@pytest.mark.drops("too-big", "no-session")
def test_jumbo_frames_continue_at_the_supported_mtu(outage):
    """The MTU is raised under a running forwarder, and is present at another one's start."""
    try:
        set_mtu(outage, 9000)
        for restarted in (False, True):
            if restarted:
                outage.steelyard.restart_forwarder(signal.SIGTERM)
            wait_until(lambda: port(outage, "front")["problem"], "the MTU's limit is shown")
            front = port(outage, "front")
            assert "9000" in front["problem"]
            assert 1500 <= front["mtu"] < 9000
            content = os.urandom(200_000)
            for family in (4, 6):
                with connect(outage.client, VIP[family], ECHO, timeout_s=20) as one:
                    for at in range(0, len(content), 20_000):
                        one.sendall(content[at : at + 20_000])
                        assert receive_exactly(one, 20_000) == content[at : at + 20_000]
            before = outage.steelyard.drops().get("too-big", 0)
            with outage.client.ns.socket(2, 2) as one:
                one.sendto(bytes(8000), (VIP[4], 53))
            wait_until(
                lambda b=before: outage.steelyard.drops().get("too-big", 0) > b, "too-big counts"
            )
    finally:
        set_mtu(outage, 1500)
        outage.steelyard.restart_forwarder(signal.SIGTERM)
    outage.steelyard.wait_reconnected()
    assert not port(outage, "front")["problem"]
