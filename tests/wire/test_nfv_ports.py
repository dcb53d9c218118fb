# SPDX-License-Identifier: Apache-2.0
"""Two requests of a project share a VIP, each with its own port, under real traffic."""

import pytest

from tests.lab import Lab, wait_until
from tests.lab.clients import wrk
from tests.lab.controllers import Controllers, Member
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB

VIPS = {4: "10.66.0.80", 6: "fd66::80"}
PORTS = {"http": 80, "https": 443}


class Shared:
    """A controller, two forwarders, and a client whose route to the VIP the test sets."""

    def __init__(self, lab, family):
        self.lab, self.client = lab, lab["client"]
        self.family, self.vip = family, VIPS[family]
        self.host = f"[{self.vip}]" if family == 6 else self.vip
        self.controllers = Controllers(lab)
        self.members = {f"f{n}": Member(lab, self.controllers, n) for n in (1, 2)}
        self.settings = lab.dir / "settings.yaml"
        self.settings.write_text("scheduler: rr\nhealth: { type: tcp, interval: 500ms }\n")
        for host in lab.servers():
            start_nginx(lab, host.name)
        self.controllers.start()
        for member in self.members.values():
            member.join()

    def words(self, name, port):
        words = [
            "nfv",
            "request",
            name,
            "--vip",
            f"{self.host}:{port}",
            "--settings",
            self.settings,
        ]
        for host in self.lab.servers():
            words += ["--real", f"{host.v4}:{SERVER_WEB}"]
        return words

    def reach(self, name, *states):
        return self.controllers.await_request(name, *states)

    def follow(self, name):
        """Sets the route that a request requires, and confirms it."""
        route = self.reach(name, "routing")["route"]
        way = f"{route['destination']} via {route['next_hop']}"
        self.client.ns.ip(f"-{self.family} route replace {way}")
        self.controllers.cli("nfv", "route-set", name)
        return route

    def serves(self, name):
        """Opens new connections to a request's port; none may fail."""
        url = f"http://{self.host}:{PORTS[name]}/"
        done = wrk(self.lab, url, 30, connections=3, keep_alive=False)
        assert not done.failed, (name, done)
        assert set(done.served) == {host.name for host in self.lab.servers()}, name

    def serve(self):
        for name in PORTS:
            self.serves(name)

    def services(self, member):
        return [service["name"] for service in self.members[member].get("services")]


@pytest.fixture(params=(4, 6), ids=("v4", "v6"))
def shared(request):
    """Servers have IPv4 alone: IPv6 sessions are translated."""
    with Lab() as lab:
        yield Shared(lab, request.param)


def test_two_requests_share_a_vip_across_restart_and_move(shared):
    cli = shared.controllers.cli
    cli(*shared.words("http", 80))
    first = shared.follow("http")
    cli(*shared.words("https", 443))
    second = shared.reach("https", "routed", "serving")
    assert second["route"] == {**first, "confirmed": True}, "the route is there already"
    here = first["forwarder"]
    there = next(name for name in shared.members if name != here)
    assert shared.services(here) == ["nfv.http", "nfv.https"]
    assert not shared.services(there)
    shared.serve()

    refused = cli(*shared.words("more", 443), check=False)
    assert (
        refused.returncode and f"the request https has {shared.vip} port tcp/443" in refused.stderr
    )

    restart(shared)
    move(shared, here, there)
    end(shared, there)


def restart(shared):
    """Both ports are served without the controller, and after its return."""
    shared.controllers.kill("c1")
    shared.serve()
    shared.controllers.revive()
    for name in PORTS:
        assert shared.reach(name, "serving")["route"]["generation"] == 1
    shared.serve()


def move(shared, here, there):
    """Both requests leave a dead forwarder; the route is set once."""
    shared.members[here].die()
    route = shared.follow("https")
    assert (route["forwarder"], route["generation"]) == (there, 2)
    for name in PORTS:
        now = shared.reach(name, "routed", "serving")
        assert (now["forwarder"], now["route"]["generation"]) == (there, 2)
    shared.serve()


def end(shared, there):
    """One request ends, and the other keeps VIP and route until it ends, too."""
    shared.controllers.cli("nfv", "delete", "http")
    assert shared.reach("http", "removed")["route"] is None
    wait_until(lambda: shared.services(there) == ["nfv.https"], "the port is closed")
    shared.serves("https")
    shared.controllers.cli("nfv", "delete", "https")
    assert shared.reach("https", "withdrawing")["route"]["withdraw"]
    shared.client.ns.ip(f"-{shared.family} route del {shared.vip}")
    shared.controllers.cli("nfv", "route-set", "https")
    shared.reach("https", "removed")
    wait_until(lambda: not shared.services(there), "the VIP is closed")
