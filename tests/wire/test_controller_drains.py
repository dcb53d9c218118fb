# SPDX-License-Identifier: Apache-2.0
"""Drains by command under a controller survive the replacement of a host and the move of a service,
under traffic."""

import signal

import pytest

from tests.lab import Lab, wait_until
from tests.lab.clients import finish_wrk, http_get, start_wrk
from tests.lab.controllers import Controllers, Member
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB, VIP, WEB

MOVING = "10.66.0.80"


@pytest.mark.workers(1)  # none of it is a worker's
def test_replaced_host_keeps_drains(stage, joined):
    #   wrk ── forwarder ── s1: drained by a controller, s2: at the agent's socket, s3, …
    #              │
    #       agent ─┘ on a host with an empty disk ◄── c1
    steelyard = stage.steelyard
    joined.apply()
    joined.await_in_force("the forwarder has what is desired")
    steelyard.wait_all_up()
    first, second, *others = stage.nginx
    joined.controllers.cli("drain", f"{stage.lab[first].v4}@web4")
    steelyard.cli("drain", f"{stage.lab[second].v4}@web4")
    wait_until(
        lambda: "at its own socket" in joined.controllers.cli("get", "audit"), "c1 has heard of it"
    )
    url = f"http://{VIP[4]}:{WEB}/"
    load = start_wrk(stage.lab, url, 0, connections=4, keep_alive=False, pause_ms=5)
    steelyard.agent.kill()
    joined.enlist()
    wait_until(joined.weights, "the new host has its configuration")
    steelyard.wait_server("web4", stage.lab[first].v4, "drain")
    steelyard.wait_server("web4", stage.lab[second].v4, "drain")
    joined.apply(weight=7)
    joined.await_in_force("a change goes through by the new host")
    for name in (first, second):
        steelyard.wait_server("web4", stage.lab[name].v4, "drain")
    load.send(signal.SIGINT)
    served = finish_wrk(load)
    assert not served.failed and set(served.served) <= set(others), served

    joined.controllers.cli("drain", f"{stage.lab[second].v4}@web4", "--undo")
    wait_until(
        lambda: http_get(stage.client, VIP[4], WEB).decode().strip() == second, "it serves again"
    )


class Moving:
    """Two forwarders of one controller, and a request whose route the test sets."""

    def __init__(self, lab):
        self.lab, self.client = lab, lab["client"]
        self.controllers = Controllers(lab)
        self.members = {f"f{n}": Member(lab, self.controllers, n) for n in (1, 2)}

    def start(self):
        for host in self.lab.servers():
            start_nginx(self.lab, host.name)
        self.controllers.start()
        self.members["f1"].join()
        settings = self.lab.dir / "settings.yaml"
        settings.write_text("health: { type: none }\n")
        words = ["nfv", "request", "web", "--vip", f"{MOVING}:80", "--settings", settings]
        for host in self.lab.servers():
            words += ["--real", f"{host.v4}:{SERVER_WEB}"]
        self.controllers.cli(*words)
        self.route("f1")
        self.members["f2"].join()

    def route(self, forwarder):
        """Sets the route that the request requires once it is at a forwarder."""

        def there():
            now = self.controllers.await_request("web", "routing")
            return now["forwarder"] == forwarder and now["route"]

        hop = wait_until(there, f"the service is at {forwarder}")["next_hop"]
        self.client.ns.ip(f"route replace {MOVING}/32 via {hop}")
        self.controllers.cli("nfv", "route-set", "web")

    def drain(self, host, forwarder, *words):
        server = f"{self.lab[host].v4}@nfv.web"
        return self.controllers.cli("drain", server, "--forwarder", forwarder, *words)

    def states(self, forwarder):
        servers = self.members[forwarder].get("servers", "--service", "nfv.web")
        return {server["address"]: server["state"] for server in servers}

    def serves(self):
        return http_get(self.client, MOVING, 80).decode().strip()


def test_moved_service_keeps_drains():
    #   client ──▶ [ f1 ] dies ──▶ s1, drained, s2, s3
    #         └──▶ [ f2 ] ────────▶
    with Lab() as lab:
        moving = Moving(lab)
        moving.start()
        first, *others = (host.name for host in lab.servers())
        moving.drain(first, "f1")
        assert moving.states("f1")[lab[first].v4] == "drain"
        assert {moving.serves() for _ in range(12)} <= set(others)

        moving.members["f1"].die()
        moving.route("f2")
        assert {moving.serves() for _ in range(12)} <= set(others)
        assert moving.states("f2")[lab[first].v4] == "drain"

        moving.drain(first, "f2", "--undo")
        wait_until(lambda: moving.serves() == first, "it serves again")
