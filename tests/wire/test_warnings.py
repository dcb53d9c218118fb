# SPDX-License-Identifier: Apache-2.0
"""Settings that cannot work are refused with a reason; suboptimal ones appear in the status."""

import os
import signal
from pathlib import Path

import pytest

from tests.lab import Lab, Server, Service, wait_until
from tests.lab.config import Config
from tests.lab.netns import is_over
from tests.lab.process import run
from tests.lab.steelyard import FORWARDER, WEB, Steelyard, local_addresses, memory_options
from tests.lab.topology import v4, v6

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
ROUTER = {4: "10.0.0.2", 6: "fd00::2"}  # of the lab: the gateway to `far`


@pytest.fixture(scope="module")
def small():
    """Two workers on ports with one queue, and no service yet."""
    with Lab() as lab:
        config = Config(local_addresses(lab.network.back_net))
        steelyard = Steelyard(lab, config, workers=2)
        steelyard.start()
        yield steelyard


def service(steelyard, vip, server):
    return Service("web", vip, WEB, servers=[Server(server, 8080)])


def refused(steelyard, one):
    """Returns the error of `apply` for a configuration with this service; it must change
    nothing."""
    before = steelyard.config.services
    steelyard.config.services = [one]
    try:
        done = steelyard.cli("apply", "-", stdin=steelyard.config.text(), check=False)
    finally:
        steelyard.config.services = before
    assert done.returncode
    assert steelyard.get("services") == []
    return done.stderr


def warnings(steelyard):
    return steelyard.get("status")["warnings"]


@families
def test_gateway_as_vip_is_refused(small, family):
    server = small.lab["s1"].address(family)
    said = refused(small, service(small, ROUTER[family], server))
    assert f"{ROUTER[family]} is a gateway" in said


@families
def test_own_address_as_server_is_refused(small, family):
    host = {4: v4(1, 1), 6: v6(1, 1)}[family]
    vip = {4: "10.0.0.80", 6: "fd00::80"}[family]
    assert f"server {host} is an address of this host" in refused(small, service(small, vip, host))


@families
def test_neighbours_address_as_vip_is_reported(small, family):
    """Another balancer may be about to release it, so it is accepted."""
    client = small.lab["client"].address(family)
    ns = small.lab["forwarder"].ns
    ns.run(["ping", "-c1", client])
    before = small.config.services
    small.config.services = [service(small, client, small.lab["s1"].address(family))]
    try:
        small.apply()
        found = [text for text in warnings(small) if text.startswith(f"{client}: another host (")]
        mac = small.lab["client"].ns.mac("eth0")
        assert len(found) == 1 and mac in found[0], (found, mac)
    finally:
        small.config.services = before
        small.apply()


def test_workers_without_queues_are_reported(small):
    said = [text for text in warnings(small) if "has receive queues for 1 of 2 workers" in text]
    assert sorted(text.split()[1] for text in said) == sorted(small.lab.network.ports)
    assert "has receive queues for 1 of 2 workers" in small.forwarder.output()


def test_unsaved_state_is_reported(small):
    """The state directory vanishes, as on a failing disk, and returns."""
    state = small.dir / "state"
    away = state.with_name("away")

    def is_unsaved():
        return any("but not saved" in text for text in warnings(small))

    assert not is_unsaved()
    state.rename(away)
    before = small.config.services
    small.config.services = [service(small, "10.0.0.80", small.lab["s1"].v4)]
    small.apply()
    wait_until(is_unsaved, "the status says that the configuration is not saved")
    away.rename(state)
    wait_until(lambda: not is_unsaved(), "it is saved")
    small.config.services = before
    small.apply()


def test_ip_netns_exec_is_refused(small, tmp_path):
    """It makes a mount namespace whose bpffs, and so the pinned XDP link, ends with the process."""
    ns = small.lab["s3"].ns  # without a forwarder
    place = ["--state", tmp_path, "--socket", tmp_path / "forwarder.sock"]
    start = [FORWARDER, "--instance", f"{small.lab.id}b", *place, "--no-huge"]
    ns.ip("link add one type veth peer name two")
    for words in (["--port", "one"], ["--cleanup"]):
        argv = ["ip", "netns", "exec", ns.name, *start, *words]
        done = run(argv, check=False)
        assert done.returncode, done.stdout
        assert "nsenter --net=/run/netns/NAME" in done.stderr
    assert not ns.run(["nft", "list", "ruleset"])
    ns.ip("link del one")


def test_xdp_link_survives_in_the_hosts_bpffs(tmp_path):
    """The host's first process has mounted a bpffs; here a private one, because containers do not
    show theirs. The XDP link is still attached after `kill -9`."""
    with Lab() as lab:
        pins = tmp_path / "pins"
        pins.mkdir()
        place = ["--state", tmp_path, "--socket", tmp_path / "forwarder.sock"]
        ports = [word for port in lab.network.ports for word in ("--port", port)]
        start = [FORWARDER, "--instance", lab.id, *place, *ports, "--log", "info"]
        start += ["--sessions", "1024", *memory_options(lab)]
        first = [*"unshare --pid --fork --mount-proc --kill-child sh -c".split()]
        first += [f'mount -t bpf bpf {pins} && "$@"; sleep infinity', "sh"]
        inside = f'mount --bind {pins} /sys/fs/bpf && exec "$@"'
        argv = [*first, *"unshare --mount sh -c".split(), inside, "sh", *start]
        forwarder = lab.start("forwarder", "steelyard-private", argv)
        forwarder.wait_for(r"\bready\b")
        assert "private mount namespace" not in forwarder.output()
        ns = lab["forwarder"].ns
        names = {pid: Path(f"/proc/{pid}/comm").read_text() for pid in ns.pids()}
        (pid,) = (pid for pid, name in names.items() if name.startswith("steelyard-forw"))
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: is_over(pid), "it has ended")
        assert "xdp" in ns.ip("-d link show front")
        forwarder.kill()
        cleanup = ns.command([*start[:3], *place, "--cleanup"])
        run(cleanup)


def test_private_mount_namespace_is_reported(tmp_path):
    """A bpffs ends with its mount namespace, and so does the flow director's pinned link. The
    host's first process is a private one here, because containers do not show theirs."""
    with Lab() as lab:
        place = ["--state", tmp_path, "--socket", tmp_path / "forwarder.sock"]
        ports = [word for port in lab.network.ports for word in ("--port", port)]
        start = [FORWARDER, "--instance", lab.id, *place, *ports, "--log", "info"]
        start += ["--sessions", "1024", *memory_options(lab)]
        first = [*"unshare --pid --fork --mount-proc --kill-child sh -c".split(), '"$@"; true']
        mount = 'mount -t bpf bpf /sys/fs/bpf && exec "$@"'
        argv = [*first, "sh", "unshare", "--mount", "sh", "-c", mount, "sh", *start]
        forwarder = lab.start("forwarder", "steelyard-private", argv)
        forwarder.wait_for("bpffs is mounted in a private mount namespace")
        forwarder.wait_for(r"\bready\b")
        forwarder.kill()
        cleanup = lab["forwarder"].ns.command([*start[:3], *place, "--cleanup"])
        wait_until(lambda: not run(cleanup, check=False).returncode, "its traces are removed")


def test_packets_that_begin_no_session_are_counted_by_service(small):
    """No server of the service is up: its packets are refused, and counted by service."""
    before, metrics = small.config.services, small.config.metrics
    empty = service(small, "10.0.0.80", small.lab["s1"].v4)
    empty.servers = []
    small.config.services = [empty]
    small.config.metrics = f"{small.lab['forwarder'].v4}:9109"
    small.apply()
    try:
        ask = ["curl", "-sS", "-m1", "http://10.0.0.80/"]
        scrape = ["curl", "-sS", f"http://{small.config.metrics}/metrics?service=web"]
        name = "steelyard_service_refused_packets_total{"

        def counted():
            run(small.lab["client"].ns.command(ask), check=False)
            text = small.lab["forwarder"].ns.run(scrape)
            line = next(line for line in text.splitlines() if line.startswith(name))
            return int(line.split()[-1]) > 0 and 'service="web"' in line

        wait_until(counted, "the service's refused packets are counted")
    finally:
        small.config.services, small.config.metrics = before, metrics
        small.apply()
