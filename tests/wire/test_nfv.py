# SPDX-License-Identifier: Apache-2.0
"""The NFV workflow, ① to ⑧: three controllers, a real forwarder, real traffic, and the reference
manager of examples/nfv-manager.

The manager creates the forwarder and sets the routes. The controller that works on requests is
killed in the middle of three of the steps: each such step waits for the test, so the kill hits its
middle."""

import signal

import pytest

from tests.lab import Lab, wait_until
from tests.lab.clients import http_get, wrk
from tests.lab.controllers import MANAGER, Controllers, Member
from tests.lab.reporter import PORT, Reporter
from tests.lab.servers import start_nginx
from tests.lab.stall import stall
from tests.lab.steelyard import SERVER_WEB

WEB, SHOP = "10.66.0.80", "10.66.0.81"
EVEN = 1 / 3
STALL_S = 5  # a lease lasts ten
# Shares follow the servers' own load alone: this lab's links are as fast as its free cores.
SETTINGS = f"""\
scheduler: share
health: {{ type: tcp, interval: 500ms, timeout: 500ms }}
load: {{ type: orca, port: {PORT}, path: /, interval: 1s }}
feedback: {{ settle: 2s, gamma: 0 }}
"""


class Nfv:
    """Servers, controllers, and a management system whose programs wait for the test."""

    def __init__(self, lab):
        self.lab, self.client = lab, lab["client"]
        self.loads = {host.name: 0.1 for host in lab.servers()}
        self.reporter = Reporter(
            lab, {name: lambda name=name: self.loads[name] for name in self.loads}
        )
        self.controllers = Controllers(lab, 3)
        self.forwarder = Member(lab, self.controllers, 1)
        self.settings = lab.dir / "settings.yaml"
        # What the management system has to wait for, and what it has done.
        self.made, self.open = lab.dir / "made", lab.dir / "open"
        self.created, self.routed = lab.dir / "created", lab.dir / "routed"

    def start(self):
        self.settings.write_text(SETTINGS)
        for host in self.lab.servers():
            start_nginx(self.lab, host.name)
        self.reporter.start()
        self.controllers.start()
        route = self.script(
            "route.sh",
            f'echo "$@" >>{self.routed}',
            f"until test -e {self.open}; do sleep 0.1; done",
            'case $1 in set) verb=replace ;; *) verb="del" ;; esac',
            f'ip -n {self.client.ns.name} route $verb "$2" via "$3" || test $verb = del',
        )
        create = self.script(
            "create.sh",
            f"echo forwarder >>{self.created}",
            f"until test -e {self.made}; do sleep 0.1; done",
        )
        argv = [MANAGER, "--socket", self.controllers.socket(), "--route", route]
        self.manager = self.lab.start("c1", "nfv-manager", [*argv, "--create", create])
        self.manager.wait_for("manager is ready")

    def script(self, name, *lines):
        path = self.lab.dir / name
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return path

    def close(self):
        if self.forwarder.forwarder:
            self.forwarder.forwarder.send(signal.SIGCONT)
        if self.reporter.is_alive():
            self.reporter.close()

    # ---- what the management system asks ---------------------------------------------------------

    def words(self, name, vip, *more):
        words = ["nfv", "request", name, "--vip", f"{vip}:80", "--settings", self.settings]
        for host in self.lab.servers():
            words += ["--real", f"{host.v4}:{SERVER_WEB}"]
        return [*words, *more]

    def ask(self, name, vip, **options):
        return self.controllers.get(*self.words(name, vip), **options)

    def reach(self, name, *states):
        return self.controllers.await_request(name, *states)

    def kill_leader(self):
        """Kills the leader: another controller works on requests; the killed one returns."""
        controllers = self.controllers
        name = wait_until(controllers.leader, "a controller works on requests")
        controllers.kill(name)
        wait_until(lambda: controllers.leader() not in (None, name), f"another than {name}")
        controllers.revive()

    # ---- what there is ---------------------------------------------------------------------------

    def route_to(self, vip):
        return self.client.ns.ip(f"route show {vip}").strip()

    def share(self, name, host):
        """Returns a server's share of a service's new sessions, None if unknown."""
        reals = self.controllers.request(name)["real_services"]
        (one,) = (r for r in reals if r["dip"] == self.lab[host].v4)
        return one["reserved"] and one["reserved"]["to"] - one["reserved"]["from"]

    def load(self, vip, requests):
        """Opens new connections; none may fail. Returns how many each server has served."""
        done = wrk(self.lab, f"http://{vip}/", requests, connections=4, keep_alive=False)
        assert not done.failed, done
        return done.served


@pytest.fixture
def nfv():
    with Lab() as lab:
        one = Nfv(lab)
        try:
            one.start()
            yield one
        finally:
            one.close()


def test_workflow_survives_three_killed_leaders(nfv):
    #   nfv-manager ── c1, c2, c3: who works on requests is killed three times
    #        │ sets routes    │
    #     client ─────────▶ [ f1 ] ──▶ s1, s2, s3
    web = nfv.ask("web", WEB)
    assert web["state"] == "acknowledged", "① ②"

    assert nfv.reach("web", "needs-forwarder")["why"] == "there is no forwarder", "③"
    nfv.kill_leader()
    wait_until(nfv.created.exists, "the management system creates a forwarder")
    assert nfv.reach("web", "needs-forwarder")
    nfv.forwarder.join()
    nfv.made.touch()

    web = nfv.reach("web", "routing")
    assert web["forwarder"] == "f1", "③"
    assert [s["name"] for s in nfv.forwarder.get("services")] == ["nfv.web"], "④"
    hop = nfv.forwarder.next_hop
    route = {"generation": 1, "destination": f"{WEB}/32", "next_hop": hop, "next_hops": [hop]}
    route |= {"forwarder": "f1", "withdraw": False, "confirmed": False}
    assert web["route"] == route, "⑤"
    nfv.kill_leader()
    assert nfv.reach("web", "routing")["route"] == route, "nothing is done again"
    assert not nfv.route_to(WEB)
    nfv.open.touch()

    nfv.reach("web", "routed", "serving")
    assert f"via {nfv.forwarder.next_hop} " in f"{nfv.route_to(WEB)} ", "⑥"
    assert http_get(nfv.client, WEB, 80).decode().strip() in nfv.loads, "⑦"
    nfv.reach("web", "serving")
    assert set(nfv.load(WEB, 300)) == set(nfv.loads)

    ask_again(nfv)
    outlive_a_stall(nfv)
    die_while_configuring(nfv)
    follow_load(nfv)
    end(nfv)


def ask_again(nfv):
    """A caller that missed the reply repeats its request at any controller."""
    before = nfv.reach("web", "serving")
    for name in nfv.controllers.names:
        again = nfv.ask("web", WEB, at=name)
        assert (again["revision"], again["state"]) == (before["revision"], "serving")
    refused = nfv.controllers.cli(*nfv.words("web", SHOP), check=False)
    assert refused.returncode and "with other contents" in refused.stderr
    assert len(nfv.controllers.get("get", "requests")) == 1


def outlive_a_stall(nfv):
    """Controllers, agent, forwarder and servers get no CPU for STALL_S: nothing moves."""
    stall(STALL_S)
    assert nfv.load(WEB, 20)
    nfv.controllers.cli("get", "forwarders")
    assert nfv.reach("web", "serving")["route"]["generation"] == 1


def die_while_configuring(nfv):
    """The forwarder replies only after the leader that configured it is dead."""
    nfv.forwarder.forwarder.send(signal.SIGSTOP)
    nfv.ask("shop", SHOP)
    nfv.reach("shop", "configuring")
    nfv.kill_leader()
    nfv.forwarder.forwarder.send(signal.SIGCONT)
    nfv.reach("shop", "routed", "serving")
    assert set(nfv.load(SHOP, 100)) <= set(nfv.loads)
    assert nfv.reach("web", "serving")["route"]["generation"] == 1
    assert nfv.load(WEB, 100), "the first one has not noticed"


def follow_load(nfv):
    """⑧ The share of a busy server falls, and so do its requests."""
    wait_until(lambda: nfv.share("web", "s1"), "shares are known")
    nfv.loads["s1"] = 0.9

    def little():
        nfv.load(WEB, 20)
        return nfv.share("web", "s1") < 0.6 * EVEN

    wait_until(little, "little for s1")
    served = nfv.load(WEB, 300)
    assert served["s1"] < min(served["s2"], served["s3"])
    nfv.loads["s1"] = 0.1

    def much():
        nfv.load(WEB, 20)
        return nfv.share("web", "s1") > 0.8 * EVEN

    wait_until(much, "s1 gets as much as the others again")


def end(nfv):
    nfv.controllers.cli("nfv", "delete", "web")
    nfv.reach("web", "removed")
    assert not nfv.route_to(WEB) and nfv.route_to(SHOP)
    wait_until(
        lambda: [s["name"] for s in nfv.forwarder.get("services")] == ["nfv.shop"],
        "the forwarder is rid of it",
    )
    assert nfv.load(SHOP, 20)
    assert nfv.created.read_text().splitlines() == ["forwarder"], "one was enough"
    assert not nfv.forwarder.drops()
