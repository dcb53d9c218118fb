# SPDX-License-Identifier: Apache-2.0
"""The forwarder and its host's kernel: changes apply live, and no trace is left."""

import re
from pathlib import Path

import pytest

from tests.lab import reap, wait_until
from tests.lab.clients import HttpConnection, connect, http_get, receive_exactly
from tests.lab.process import run
from tests.lab.steelyard import FORWARDER, VIP, WEB, memory_options
from tests.wire.conftest import check_accounting
from tests.wire.stage import ECHO, Stage

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
IP = {4: "-4", 6: "-6"}


@pytest.fixture
def host(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


def works(stage, family, source="client"):
    try:
        return http_get(stage.lab[source], VIP[family], WEB, timeout_s=1)
    except OSError:
        return None


def wait_works(stage, family, what):
    wait_until(lambda: works(stage, family), what)


@pytest.mark.drops("no-route", "no-session")
def test_vrf_is_refused(host):
    """The error names the cause; nothing is misrouted, and the VRF is accepted once the cause is
    gone."""
    ns = host.lab["forwarder"].ns

    def refusal():
        return host.steelyard.get("status")["forwarder"]["routing_refused"]

    assert not refusal()
    done = ns.ip("link add red type vrf table 100", check=False)
    if done.returncode:
        pytest.skip("this kernel has no VRF")
    ns.ip("link set front master red")
    reason = wait_until(refusal, "a port in a VRF is refused")
    assert "vrf" in reason.lower()
    assert reason in host.steelyard.cli("get", "status")
    ns.ip("link set front nomaster")
    ns.ip("link del red")
    wait_until(lambda: not refusal(), "routing is well again")
    for family in (4, 6):
        wait_works(host, family, "traffic flows again")


@pytest.mark.drops("no-route", "no-neighbour", "neighbour-queue", "blackhole", "no-session")
@families
def test_route_changes_are_followed(host, family):
    """The route to the far client: blackhole, none at all, then restored."""
    ns, flag = host.lab["forwarder"].ns, IP[family]
    far = host.lab["far"].address(family)
    router = {4: "10.0.0.2", 6: "fd00::2"}[family]
    assert works(host, family, "far")
    length = 32 if family == 4 else 128
    ns.ip(f"{flag} route add blackhole {far}/{length}")
    wait_until(lambda: not works(host, family, "far"), "the black hole swallows answers")
    ns.ip(f"{flag} route del blackhole {far}/{length}")
    wait_until(lambda: works(host, family, "far"), "the route is back")
    ns.ip(f"{flag} route add {far}/{length} via {router}")
    ns.ip(f"{flag} route del {far}/{length} via {router}")
    wait_until(lambda: works(host, family, "far"), "a route came and went")
    assert host.accounting.dropped().get("blackhole")


@pytest.mark.drops("no-neighbour", "neighbour-queue", "no-session")
@families
def test_new_mac_of_a_server_is_followed(host, family):
    """While a connection is open."""
    server = host.lab["s1"].ns
    with connect(host.client, VIP[family], ECHO, timeout_s=20) as one:
        one.sendall(b"a")
        assert receive_exactly(one, 1) == b"a"
        old = server.mac("eth0")
        new = "02:00:00:00:00:" + ("14" if family == 4 else "16")
        server.sysctl("ipv4.conf.eth0.arp_notify", 1)
        server.sysctl("ipv6.conf.eth0.ndisc_notify", 1)
        server.sysctl("ipv6.conf.eth0.keep_addr_on_down", 1)
        server.ip(f"link set eth0 down address {new}")
        server.ip("link set eth0 up")
        assert server.mac("eth0") == new != old
        one.sendall(b"b")
        assert receive_exactly(one, 1) == b"b"


@pytest.mark.drops("port-down", "no-route", "no-neighbour", "neighbour-queue", "no-session")
@families
def test_link_that_goes_and_comes_is_followed(host, family):
    switch = host.lab["switch"].ns
    with connect(host.client, VIP[family], ECHO, timeout_s=30) as one:
        one.sendall(b"a")
        assert receive_exactly(one, 1) == b"a"
        switch.ip("link set forwarder-back down")

        def up():
            ports = host.steelyard.get("ports")
            return next(port["up"] for port in ports if port["name"] == "back")

        wait_until(lambda: not up(), "the port is seen down")
        switch.ip("link set forwarder-back up")
        wait_until(up, "the port is seen up")
        one.sendall(b"b")
        assert receive_exactly(one, 1) == b"b"
    wait_works(host, family, "new connections")


@pytest.mark.drops("port-down", "no-route", "no-neighbour", "neighbour-queue", "no-session")
def test_flap_of_its_own_link_loses_no_address(host):
    """The host takes its own link down: the kernel deletes the link's IPv6 addresses and all its
    routes."""
    ns = host.lab["forwarder"].ns
    ns.ip("link set front down")
    ns.ip("link set front up")
    ns.ip("address replace fd00::1/64 dev front nodad")
    ns.ip("route replace 10.9.0.0/24 via 10.0.0.2")
    ns.ip("route replace fd00:9::/64 via fd00::2")
    # The client clears its neighbours, so the VIPs must be announced or resolved again.
    host.client.ns.ip("neigh flush all")
    for family in (4, 6):
        wait_works(host, family, f"IPv{family} works after the link came back")
        wait_until(lambda f=family: works(host, f, "far"), f"IPv{family} from behind the router")


def test_kernel_never_chooses_a_vip_as_source(host):
    """Neither VIPs nor local addresses become the source of the host's own packets."""
    ns = host.lab["forwarder"].ns
    for target in ("10.0.0.10", "fd00::10", "10.1.0.11", "fd00:1::11", "10.9.0.10", "fd00:9::10"):
        route = ns.ip(f"route get {target}")
        source = re.search(r" src (\S+)", route)[1]
        assert source in ("10.0.0.1", "fd00::1", "10.1.0.1", "fd00:1::1"), route


def test_second_forwarder_is_refused(host):
    ns = host.lab["forwarder"].ns
    argv = [FORWARDER, "--instance", f"{host.lab.id}b", *memory_options(host.lab, huge=False)]
    argv += ["--state", host.lab.dir / "second", "--socket", host.lab.dir / "second.sock"]
    done = ns.run([*argv, "--port", "front"], check=False)
    assert done.returncode > 0
    assert "front" in done.stderr
    assert works(host, 4)


def test_second_forwarder_of_an_instance_is_refused(host):
    """Whatever its ports: one forwarder owns sessions and configuration."""
    argv = host.steelyard.forwarder_argv("--no-huge", "--port", "front")
    done = host.lab["forwarder"].ns.run(argv, check=False)
    assert done.returncode > 0
    assert "a forwarder with this --instance runs already" in done.stderr
    assert works(host, 4)


def test_impossible_rings_are_refused(host):
    for ring, why in ("1000", "power of 2"), ("65536", "32768"), ("32", "64"):
        argv = host.steelyard.forwarder_argv("--port", f"front,ring={ring}")
        done = host.lab["forwarder"].ns.run(argv, check=False)
        assert done.returncode > 0
        assert "ring" in done.stderr and why in done.stderr


def test_missing_huge_pages_are_reported(host):
    """The error names what is missing and the remedy; the attempt leaves no trace."""
    ns, name = host.lab["forwarder"].ns, f"{host.lab.id}b"
    argv = [FORWARDER, "--instance", name, "--port", "front", "--memory", 1000000]
    argv += ["--state", host.lab.dir / "second", "--socket", host.lab.dir / "second.sock"]
    done = ns.run(argv, check=False)
    assert done.returncode > 0
    assert "1000000 MB of huge pages are needed and " in done.stderr
    assert "sysctl vm.nr_hugepages=" in done.stderr
    assert not files_of(ns.inode(), name)


def test_cleanup_refuses_a_live_forwarder(host):
    done = host.lab["forwarder"].ns.run(host.steelyard.forwarder_argv("--cleanup"), check=False)
    assert done.returncode > 0
    with HttpConnection(host.client, VIP[4], WEB) as one:
        assert one.get()


# ---- no trace is left ----------------------------------------------------------------------------

# Counters that the kernel changes by itself are left out.
VOLATILE = re.compile(r"expires \d+sec|valid_lft \d+sec|preferred_lft \d+sec|# handle \d+")


PLACES = [Path(p) for p in ("/run/dpdk", "/dev/hugepages", "/dev/shm", "/run/steelyard")]


def host_state(lab):
    """Returns all host state that a forwarder might have changed, as text."""
    ns = lab["forwarder"].ns
    state = {}
    for words in ("link", "address", "-4 route show table all", "-6 route show table all"):
        state[words] = ns.ip(f"-d {words}")
    for words in ("-4 rule", "-6 rule"):
        state[words] = ns.ip(words)
    state["nft"] = ns.run(["nft", "list", "ruleset"])
    state["bpf"] = ns.run(["bpftool", "net", "show"])
    state["pins"] = "\n".join(
        str(path) for path in sorted(Path("/sys/fs/bpf").glob(f"**/{ns.inode()}-*"))
    )
    files = [path for place in PLACES for path in place.glob(f"*{lab.id}*")]
    files += Path("/run/steelyard").glob(f"*{ns.inode()}*")
    files += (lab.dir / "forwarder").glob("*.sock")
    state["files"] = "\n".join(sorted(map(str, files)))
    return {name: VOLATILE.sub("", text) for name, text in state.items()}


@pytest.mark.parametrize("number", (15, 9), ids=("stopped", "killed"))
def test_cleanup_leaves_nothing(number):
    """Compares the host before and after: a clean stop or a kill, then `steelyard cleanup`."""
    with Stage(checked=False, running=False) as stage:
        before = host_state(stage.lab)
        stage.start()
        assert works(stage, 4)
        assert works(stage, 6)
        during = host_state(stage.lab)
        assert during["pins"]
        assert during["nft"] != before["nft"]
        stage.steelyard.agent.stop()
        stage.steelyard.forwarder.stop(number)
        sessions = stage.steelyard.session_file()
        assert sessions.stat().st_mode & 0o777 == 0o600
        sessions.with_name(sessions.name + ".refused").touch()
        assert stage.steelyard.cleanup().strip(), "cleanup does not say what it removed"
        after = host_state(stage.lab)
        differences = {name: (before[name], after[name]) for name in before}
        assert {n: d for n, d in differences.items() if d[0] != d[1]} == {}
        # A second run has nothing to do and succeeds.
        stage.steelyard.cleanup()


def files_of(inode, instance=""):
    """Returns notes and locks of all forwarders of a namespace, or of one."""
    return [str(path) for path in Path("/run/steelyard").glob(f"*-{inode}*{instance}")]


@pytest.mark.parametrize("end", ("close", "reap"))
def test_lab_leaves_no_files(end):
    """Both at its own end, and when another process cleans up after its death."""
    with Stage(checked=False) as stage:
        inode = stage.lab["forwarder"].ns.inode()
        assert files_of(inode)
        if end == "reap":
            reap.remove(stage.lab.id)
            stage.lab.processes.clear()
            assert not files_of(inode)
    assert not files_of(inode)


def test_stop_is_clean(host):
    assert host.steelyard.forwarder.stop() == 0
    assert not host.steelyard.forwarder_socket.exists()


def test_version_is_printed():
    assert re.search(r"\d+\.\d+\.\d+", run([FORWARDER, "--version"]))
