# SPDX-License-Identifier: Apache-2.0
"""The agents of two nodes announce addresses by BIRD or FRR, with the shipped filters, or by BGP of
their own, and a router spreads flows over both nodes."""

import copy
import shutil
import signal

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import finish_wrk, http_get, start_wrk
from tests.lab.config import Config
from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.servers import start_nginx
from tests.lab.steelyard import FAST_CHECKS, SERVER_WEB, STEELYARD, WEB, Steelyard
from tests.lab.topology import FRONT, v4, v6
from tests.wire import routers
from tests.wire.stage import Stage

HOSTS = {1: "forwarder", 3: "standby"}  # by their numbers on the front network
BOTH = set(HOSTS)
# Reached by routes alone: no network has them.
WIDE = {4: "10.5.0.80", 6: "fd00:5::80"}  # on all servers
SINGLE = {4: "10.5.0.81", 6: "fd00:5::81"}  # on s1
DIRECT = {4: "10.5.0.82", 6: "fd00:5::82"}  # any node continues a connection
PASSWORD = "a-secret-of-BGP"  # FRR accepts no spaces
LOCAL = {number: {4: v4(FRONT, 200 + number), 6: v6(FRONT, 200 + number)} for number in HOSTS}


def services(network):
    health = {"type": "http", "path": "/healthz"} | FAST_CHECKS
    for family in (4, 6):
        servers = [Server(host.address(family), SERVER_WEB) for host in network.server_hosts()]
        yield Service(f"wide{family}", WIDE[family], WEB, health=health, servers=servers)
        yield Service(f"single{family}", SINGLE[family], WEB, health=health, servers=servers[:1])
        # Both nodes choose the same server for a connection, also in its middle.
        spread = {"hash_on": "tuple", "sloppy_tcp": True}
        kind = ("tcp", "maglev", "dr", spread)
        yield Service(f"direct{family}", DIRECT[family], SERVER_WEB, *kind, servers=servers)


class Routed(Stage):
    """Two nodes without sessions of each other. A context manager."""

    def __init__(self, router, means="bird"):
        super().__init__(1, checked=False, arms=1, pair=True)
        self.router_kind, self.means = router, means

    def start(self):
        network = self.lab.network
        self.lab["router"].ns.ip("route del default")
        self.lab["router"].ns.ip("-6 route del default")
        for host in network.server_hosts():
            network.default_route(host.name, v4(FRONT, routers.ROUTER), v6(FRONT, routers.ROUTER))
            for address in DIRECT.values():
                host.ns.ip(f"address add {address} dev lo")
            self.nginx[host.name] = start_nginx(self.lab, host.name)
        password = self.lab.dir / "bgp-password"
        password.write_text(f"{PASSWORD}\n")
        bfd = {"bfd": "1s"} if self.router_kind == "bird" else {}
        self.nodes = {}
        for number, host in HOSTS.items():
            config = Config(list(LOCAL[number].values()), list(services(network)))
            own = v4(FRONT, number)
            config.routes = {
                "bird": {"kernel": {"metric": 100}},
                "frr": {"kernel": {"metric": 100}, "bgp": routers.agent_bgp(own, [6])},
                "bgp": {"bgp": routers.agent_bgp(own, password_file=str(password), **bfd)},
            }[self.means]
            self.nodes[number] = Steelyard(self.lab, config, host=host)
            self.nodes[number].start()
            if self.means != "bgp":
                routers.start_node_daemon(self.lab, host, self.means, number)
        password = PASSWORD if self.means == "bgp" else ""
        self.router = routers.Router(self.lab, self.router_kind, HOSTS, password)
        self.wait_announced(BOTH, WIDE, SINGLE, DIRECT)

    def wait_announced(self, numbers, *addresses):
        """Waits until the router sends packets for addresses to these nodes, and no others."""
        for address in (one for family in addresses for one in family.values()):
            wait_until(
                lambda address=address: self.router.next_hops(address) == set(numbers),
                lambda address=address: (
                    f"{address} goes to {numbers}, not {self.router.next_hops(address)}"
                ),
            )

    def served(self, number, name="wide"):
        """Returns the packets of clients that a node has forwarded for a service."""
        services = self.nodes[number].get("services")
        return sum(one["traffic"]["packets_in"] for one in services if one["name"][:-1] == name)


@pytest.fixture(scope="module", params=["bird-bird", "frr-bird", "bird-frr", "bird-bgp", "frr-bgp"])
def stage(request):
    with Routed(*request.param.split("-")) as stage:
        yield stage


def state_of(node, prefix):
    return next(one for one in node.get("routes") if one["prefix"] == prefix)


def test_addresses_are_announced(stage):
    for number, local in LOCAL.items():
        stage.wait_announced({number}, local)
        shown = stage.nodes[number].get("routes")
        assert all(one["announced"] and not one["reason"] for one in shown)
        assert {one["kind"] for one in shown} == {"vip", "local"}

    def spread():
        for family in (4, 6):
            assert http_get(stage.lab["far"], WIDE[family], WEB).strip() in (b"s1", b"s2", b"s3")
        return all(stage.served(number) for number in HOSTS)

    wait_until(spread, "the router spreads flows over both nodes")


def test_neighbors_are_shown(stage):
    for node in stage.nodes.values():

        def shown(node=node):
            sessions = node.get("neighbors")
            return all(
                one["state"] == "established" and one["bfd"] in ("", "up") for one in sessions
            )

        wait_until(shown, "all sessions are established")
        sessions = node.get("neighbors")
        assert len(sessions) == {"bird": 0, "frr": 1, "bgp": 2}[stage.means]
        if stage.means == "bgp" and stage.router_kind == "bird":
            assert all(one["bfd"] for one in sessions)


def test_a_vip_without_healthy_servers_is_withdrawn(stage):
    stage.nginx["s1"].kill()
    stage.wait_announced((), SINGLE)
    stage.wait_announced(BOTH, WIDE)
    for number, node in stage.nodes.items():
        said = state_of(node, f"{SINGLE[4]}/32")
        assert not said["announced"] and "healthy" in said["reason"], said
        stage.wait_announced({number}, LOCAL[number])
    stage.nginx["s1"] = start_nginx(stage.lab, "s1")
    stage.wait_announced(BOTH, SINGLE)


@pytest.mark.parametrize("number", HOSTS)
def test_a_dead_forwarder_is_withdrawn(stage, number):
    node = stage.nodes[number]
    node.kill_forwarder()
    stage.wait_announced(BOTH - {number}, WIDE, SINGLE, DIRECT)
    stage.wait_announced((), LOCAL[number])
    assert "forwarder" in state_of(node, f"{WIDE[4]}/32")["reason"]
    node.start_forwarder()
    stage.wait_announced(BOTH, WIDE, SINGLE, DIRECT)
    stage.wait_announced({number}, LOCAL[number])


@pytest.mark.parametrize("number", HOSTS)
def test_a_hanging_forwarder_is_withdrawn(stage, number):
    node = stage.nodes[number]
    node.forwarder.send(signal.SIGSTOP)
    try:
        stage.wait_announced(BOTH - {number}, WIDE)
    finally:
        node.forwarder.send(signal.SIGCONT)
    stage.wait_announced(BOTH, WIDE)


@pytest.mark.parametrize("number", HOSTS)
def test_the_next_agent_adopts_and_removes_routes(stage, number):
    node = stage.nodes[number]
    node.agent.kill()
    kept, node.config = node.config, copy.deepcopy(node.config)
    stage.wait_announced(BOTH, WIDE, SINGLE)  # the forwarder serves without an agent
    node.config.services.remove(node.config["single4"])
    node.write_config()
    node.start_agent()
    wait_until(lambda: stage.router.next_hops(SINGLE[4]) == BOTH - {number}, "one is removed")
    stage.wait_announced(BOTH, WIDE)
    node.wait_in_sync()
    node.config = kept
    node.apply()
    stage.wait_announced(BOTH, SINGLE)


@pytest.mark.parametrize("number", HOSTS)
def test_a_drained_node_loses_no_request(stage, number):
    """Its flows move while it still forwards; then it stops."""
    node, (other,) = stage.nodes[number], BOTH - {number}
    loads = []
    for family in (4, 6):
        url = f"http://[{DIRECT[6]}]" if family == 6 else f"http://{DIRECT[4]}"
        loads.append(start_wrk(stage.lab, f"{url}:{SERVER_WEB}/", 0, host="far", connections=8))
    before = stage.served(number, "direct")
    wait_until(lambda: stage.served(number, "direct") > before + 100, "the node serves")
    said = node.cli("drain", "node", "--wait")
    assert said == "node: draining, its routes are withdrawn\nnode: drained\n"
    stage.wait_announced(BOTH - {number}, WIDE, SINGLE, DIRECT)
    stage.wait_announced((), LOCAL[number])
    done = run([STEELYARD, "--socket", node.agent_socket, "health"], check=False)
    assert done.returncode == 2 and "this node is drained" in done.stdout
    node.forwarder.stop(signal.SIGTERM)
    moved = stage.served(other, "direct")
    wait_until(lambda: stage.served(other, "direct") > moved + 100, "the other node serves")

    node.start_forwarder()
    node.agent.stop(signal.SIGTERM)
    node.start_agent()
    node.wait_in_sync()
    assert not state_of(node, f"{WIDE[4]}/32")["announced"], "a drain survives restarts"
    assert node.cli("undrain", "node") == "node: no longer drained\n"
    stage.wait_announced(BOTH, WIDE, SINGLE, DIRECT)
    before = stage.served(number, "direct")
    wait_until(lambda: stage.served(number, "direct") > before + 100, "the node serves again")
    for load in loads:
        load.send(signal.SIGINT)
        result = finish_wrk(load)
        assert result.requests and not result.failed, result


def test_cleanup_removes_the_routes_of_a_dead_agent():
    with Stage(running=False, arms=1) as stage:
        namespace = stage.lab["forwarder"].ns
        for family in ("-4", "-6"):
            prefix = WIDE[int(family[1])]
            namespace.ip(f"{family} route add blackhole {prefix} table 202 proto 202")
            namespace.ip(f"{family} route add blackhole {prefix} table 202 proto 203 metric 7")
        folder = stage.lab.dir / "programs"
        folder.mkdir()
        shutil.copy(ROOT / "build/bin/steelyard", folder)
        (folder / "steelyard-forwarder").write_text("#!/bin/sh\n")
        (folder / "steelyard-forwarder").chmod(0o755)
        said = namespace.run([folder / "steelyard", "cleanup"])
        assert sorted(said.splitlines()) == [f"route {WIDE[4]}/32", f"route {WIDE[6]}/128"]
        for family in ("-4", "-6"):
            assert "proto 202" not in namespace.run(["ip", family, "route", "show", "table", "202"])
            assert "proto 203" in namespace.run(["ip", family, "route", "show", "table", "202"])
