# SPDX-License-Identifier: Apache-2.0
"""Health checks by mode: DR and IPIP servers are checked on the VIP, as clients use them.

A server without the VIP, or without its tunnel end, is down although its own address answers."""

import copy
import signal
import socket

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import http_get
from tests.lab.steelyard import FAST_CHECKS, SERVER_WEB, VIP, WEB
from tests.lab.topology import FRONT, v4, v6
from tests.lab.tunnel import TunnelEnd
from tests.wire.conftest import check_accounting
from tests.wire.stage import Stage

# Mode, the VIP's family, the server's.
CELLS = {
    "dr-v4": ("dr", 4, 4),
    "dr-v6": ("dr", 6, 6),
    "ipip-4in4": ("ipip", 4, 4),
    "ipip-6in6": ("ipip", 6, 6),
    "ipip-4in6": ("ipip", 4, 6),
    "ipip-6in4": ("ipip", 6, 4),
}
VIPS = {
    name: (v4 if family == 4 else v6)(FRONT, 90 + i)
    for i, (name, (_, family, _)) in enumerate(CELLS.items())
}
TUNNELS = [name for name in CELLS if name.startswith("ipip")]


class HealthStage(Stage):
    def start(self):
        self.ends = {}
        for host in self.lab.servers():
            host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
            host.ns.sysctl("ipv4.conf.all.arp_announce", 2)
            for cell in CELLS:
                self.own(host, cell)
            if self.lab.network.arms == 1:
                self.lab.network.default_route(host.name, v4(FRONT, 2), v6(FRONT, 2))
            else:
                # There are no clients here; checks use the forwarder's address beside them.
                self.lab.network.default_route(host.name, v4(1, 1), v6(1, 1))
            self.ends[host.name] = TunnelEnd(host)
        # As distributions set it: strict reverse-path filtering.
        self.lab["forwarder"].ns.sysctl("ipv4.conf.all.rp_filter", 1)
        super().start()
        for cell, (mode, _, family) in CELLS.items():
            self.config.services.append(
                Service(
                    cell,
                    VIPS[cell],
                    SERVER_WEB,
                    mode=mode,
                    health={"type": "http", "path": "/healthz"} | FAST_CHECKS,
                    servers=[
                        Server(host.address(family), SERVER_WEB)
                        for host in self.lab.network.server_hosts()
                    ],
                )
            )
        self.apply()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)

    def __exit__(self, *error):
        for end in self.ends.values():
            end.close()
        super().__exit__(*error)

    def own(self, host, cell, verb="add"):
        vip = VIPS[cell]
        host.ns.ip(f"address {verb} {vip}/{128 if ':' in vip else 32} dev lo")

    def address(self, cell, host="s1"):
        return self.lab[host].address(CELLS[cell][2])

    def answering(self, cell):
        return {http_get(self.client, VIPS[cell], SERVER_WEB).decode().strip() for _ in range(6)}


@pytest.fixture(scope="module")
def health_stage():
    """One number of workers suffices, because the kernel and the agent make the checks."""
    with HealthStage(arms=1, workers=2) as stage:
        yield stage


@pytest.fixture
def health(health_stage, request):
    yield from check_accounting(health_stage, request)


def test_server_without_the_vip_is_down(health):
    s1 = health.lab["s1"]
    for cell in CELLS:
        assert health.answering(cell) == {"s1", "s2", "s3"}
        check = health.steelyard.server(cell, health.address(cell))["health"]
        assert check["target"] in (f"{VIPS[cell]}:{SERVER_WEB}", f"[{VIPS[cell]}]:{SERVER_WEB}")
        assert not check["fallback"]
        health.own(s1, cell, "del")
    for cell in CELLS:
        health.steelyard.wait_server(cell, health.address(cell), "down")
        own = http_get(health.client, health.address(cell), SERVER_WEB).decode().strip()
        assert own == "s1", "its own address answers"
        assert health.answering(cell) == {"s2", "s3"}
        health.own(s1, cell)
    for cell in CELLS:
        health.steelyard.wait_server(cell, health.address(cell), "up")


# without it, the server's kernel has no tunnel
@pytest.mark.drops("icmp-no-session", "icmp-unhandled")
def test_server_without_a_tunnel_is_down(health):
    health.ends["s1"].close()
    for cell in TUNNELS:
        health.steelyard.wait_server(cell, health.address(cell), "down")
        assert health.answering(cell) == {"s2", "s3"}
    for cell in set(CELLS) - set(TUNNELS):  # there the server only needs the VIP
        assert health.steelyard.server(cell, health.address(cell))["state"] == "up"
    health.ends["s1"] = TunnelEnd(health.lab["s1"])
    for cell in TUNNELS:
        health.steelyard.wait_server(cell, health.address(cell), "up")


def test_fnat_checks_use_the_servers_address(health):
    for service, family in (("web4", 4), ("web6", 6)):
        for server in health.steelyard.get("servers", "--service", service):
            target = server["health"]["target"]
            assert target.strip("[").startswith(health.lab[family_host(server)].address(family))


def family_host(server):
    return f"s{server['address'][-1]}"


@pytest.mark.drops("no-session")
def test_restarts_change_no_state(health):
    """Neither a restart of the agent or the forwarder nor an upgrade changes a server's state."""
    for cell in CELLS:
        if cell.startswith("dr"):
            health.own(health.lab["s1"], cell, "del")
            health.steelyard.wait_server(cell, health.address(cell), "down")

    def states():
        return {
            (server["service"], server["address"]): server["state"]
            for server in health.steelyard.get("servers")
        }

    before = states()
    health.steelyard.agent.stop(signal.SIGTERM)
    health.steelyard.start_agent()
    health.steelyard.wait_in_sync()
    assert states() == before
    wait_until(all_checked(health), "all servers have been checked again")
    assert states() == before
    for replace in (
        lambda: health.steelyard.restart_forwarder(signal.SIGKILL),
        health.steelyard.upgrade,
    ):
        replace()
        health.steelyard.wait_reconnected()
        seen = checks(health)
        wait_until(lambda seen=seen: newer(health, seen), "all servers have been checked since")
        assert states() == before
        assert filters(health, "lo", "egress") == 1
        assert filters(health, "front", "ingress") == 1
    for cell in CELLS:
        if cell.startswith("dr"):
            health.own(health.lab["s1"], cell)
            health.steelyard.wait_server(cell, health.address(cell), "up")


def checks(health):
    return [
        server["health"]["last_check_unix_ms"]
        for server in health.steelyard.get("servers")
        if server["health"]
    ]


def all_checked(health):
    return lambda: all(checks(health))


def newer(health, seen):
    return all(now > before for now, before in zip(checks(health), seen, strict=True))


def filters(health, interface, direction):
    shown = health.lab["forwarder"].ns.run(["tc", "filter", "show", "dev", interface, direction])
    return shown.count("direct-action")


def test_checks_close_without_a_reset(health):
    """The server receives a FIN; it would count a reset as a reset established connection."""
    before = {host.name: resets(host) for host in health.lab.servers()}
    for _ in range(3):
        seen = checks(health)
        wait_until(lambda seen=seen: newer(health, seen), "all servers have been checked since")
    assert {host.name: resets(host) for host in health.lab.servers()} == before


def resets(host):
    names, values = (
        line.split()
        for line in host.ns.run(["cat", "/proc/net/snmp"]).splitlines()
        if line.startswith("Tcp:")
    )
    return values[names.index("EstabResets")]


def test_lack_of_local_ports_takes_no_server_down(health):
    """The host has no port left for checks: servers keep their states, and the status reports
    it."""
    forwarder, steelyard = health.lab["forwarder"].ns, health.steelyard
    ports = forwarder.run(["sysctl", "-n", "net.ipv4.ip_local_port_range"]).strip()
    forwarder.sysctl("ipv4.ip_local_port_range", "61000 61000")
    forwarder.sysctl("ipv4.ip_local_reserved_ports", "61000")
    try:
        wait_until(
            lambda: min(undecided(health)) > 2 * FAST_CHECKS["fall"],
            "more checks than take a server down have failed",
        )
        assert {server["state"] for server in steelyard.get("servers")} == {"up"}
        assert "widen net.ipv4.ip_local_port_range" in steelyard.cli("get", "status")
        address = health.address("dr-v4")
        assert "inconclusive" in steelyard.cli("describe", "server", f"{address}@dr-v4")
        assert "undecided (this host)" in steelyard.cli("get", "servers")
    finally:
        forwarder.sysctl("ipv4.ip_local_port_range", ports)
        forwarder.sysctl("ipv4.ip_local_reserved_ports", "")
    wait_until(lambda: not any(undecided(health)), "checks decide again")


def undecided(health):
    return [
        server["health"]["undecided"]
        for server in health.steelyard.get("servers")
        if server["health"]
    ]


@pytest.mark.parametrize("service", ["web4", "dr-v4"])
def test_lost_return_path_is_reported(health, service):
    """A server passes its checks, but its answers to sessions are lost."""
    s1, steelyard, client = health.lab["s1"], health.steelyard, health.client
    lost = [client.address(4)] if service == "dr-v4" else health.config.local_addresses
    lost = [address for address in lost if ":" not in address]
    vip, port = (VIPS[service], SERVER_WEB) if service == "dr-v4" else (VIP[4], WEB)
    for address in lost:
        s1.ns.ip(f"route add blackhole {address}")
    clients = []
    try:
        server = s1.address(4)

        def begin_and_look():
            clients.extend(begin(client, vip, port, 3 * len(health.lab.servers())))
            return steelyard.server(service, server)["unanswered_syns"] > 0

        wait_until(begin_and_look, "the server without answers is found")
        shown = steelyard.cli("get", "servers", "--service", service).splitlines()
        marked = [line for line in shown if "SYNs unanswered in 10 s, 0 answered" in line]
        assert len(marked) == 1 and server in marked[0] and "passing" in marked[0]
        assert f"server {server}:{SERVER_WEB} of {service}" in steelyard.cli("get", "status")
    finally:
        for address in lost:
            s1.ns.ip(f"route del blackhole {address}")
        for one in clients:
            one.close()


def begin(host, address, port, count):
    """Starts connections without waiting for them."""
    begun = []
    with host.ns.entered():
        for _ in range(count):
            one = socket.socket()
            one.setblocking(False)
            one.connect_ex((address, port))
            begun.append(one)
    return begun


def test_second_interface_reaches_its_servers():
    """The checks use the second interface; the forwarder leaves no trace."""
    with HealthStage(arms=2) as stage:
        address = stage.address("dr-v4")
        for cell in CELLS:
            stage.own(stage.lab["s1"], cell, "del")
        for cell in CELLS:
            stage.steelyard.wait_server(cell, stage.address(cell), "down")
            assert stage.steelyard.server(cell, stage.address(cell, "s2"))["state"] == "up"
        assert "down" not in {
            server["state"] for server in stage.steelyard.get("servers", "--service", "web4")
        }
        for cell in CELLS:
            stage.own(stage.lab["s1"], cell)
        stage.steelyard.wait_all_up()
        assert "10.0.0.90:8080" in stage.steelyard.cli("describe", "server", f"{address}@dr-v4")
        stage.steelyard.agent.stop(signal.SIGTERM)
        stage.steelyard.forwarder.stop(signal.SIGTERM)
        assert filters(stage, "back", "ingress") == 1
        assert "health checks' program of lo" in stage.steelyard.cleanup()
        assert not filters(stage, "back", "ingress") and not filters(stage, "lo", "egress")
        read = ["sysctl", "-n", "net.ipv4.conf.lo.accept_local"]
        assert stage.lab["forwarder"].ns.run(read) == "0\n"
