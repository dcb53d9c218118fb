# SPDX-License-Identifier: Apache-2.0
"""One controller and three forwarders: a management system requests services and sets routes.
Shares follow a slow link and a busy server; a forwarder dies, then the controller.

`make demo DEMO=controller` runs it; with --keep everything stays up for inspection. It waits for
events, not for time, and its exit status says whether every claim was true."""

import contextlib
import sys

from tests.demo.compute import Machine
from tests.demo.many import Clients
from tests.demo.perform import perform
from tests.demo.show import Show, say
from tests.lab import wait_until
from tests.lab.clients import http_get
from tests.lab.controllers import MANAGER, Controllers, Member
from tests.lab.link import Link
from tests.lab.reporter import PORT, Reporter
from tests.lab.servers import start_nginx
from tests.lab.steelyard import SERVER_WEB

PICTURE = """
   management system ◀── events ── controller ──▶ agents of f1, f2, f3
        │ sets routes                               (f1 is created when it is needed)
        ▼
      client ──▶ VIPs ──▶ [ f1 ] [ f2 ] [ f3 ] ──▶ s1 … s6   nginx, a tenth of a core each
                                          link emulator ─▶ s1

   Each is a network namespace of this machine. All of it takes some minutes.
"""
WEB, SHOP, MAIL = VIPS = ("10.66.0.80", "10.66.0.81", "10.66.0.82")
NAMES = {WEB: "web", SHOP: "shop", MAIL: "mail"}
SLOW, BUSY = "s1", "s2"
DELAY_MS = 60
EVEN = 1 / 6
SMALL = 0.4 * EVEN  # a share that has followed
ENOUGH = 150  # requests of each measurement
SETTINGS = f"""\
scheduler: share
health: {{ type: tcp, interval: 1s }}
load: {{ type: orca, port: {PORT}, path: /, interval: 1s }}
feedback: {{ settle: 6s, gamma: 0.9 }}
"""


class ControllerDemo:
    NETWORK = {"servers": 6}

    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.client, self.rows = lab["client"], []
        self.controllers = Controllers(lab)
        self.members, self.machines, self.created = {}, {}, lab.dir / "created"
        self.cleanup = contextlib.ExitStack()
        self.settings = lab.dir / "settings.yaml"
        self.settings.write_text(SETTINGS)
        self.manager = self.clients = self.link = None

    @property
    def steelyard(self):
        return self.members["f1"]

    def run(self):
        say(PICTURE)
        with contextlib.ExitStack() as stack:
            self.cleanup = stack
            self.start()
            self.first_request()
            self.more()
            self.shares()
            self.forwarder_dies()
            self.controller_dies()
            self.end()
            self.clients.close()
            say()
            self.show.table(["what", "before", "then", "at the end"], self.rows)
            if self.lab.outlive:
                self.cleanup = stack.pop_all()

    # ---- tools -----------------------------------------------------------------------------------

    def command(self, *words):
        self.show.command(f"steelyard {' '.join(map(str, words))}", self.controllers.cli(*words))

    def state(self, vip):
        return self.controllers.request(NAMES[vip])["state"]

    def await_state(self, vip, *states):
        self.controllers.await_request(NAMES[vip], *states)

    def forwarder_of(self, vip):
        return self.controllers.request(NAMES[vip])["forwarder"]

    def ask(self, vip, *more):
        words = ["nfv", "request", NAMES[vip], "--vip", f"{vip}:80", "--settings", self.settings]
        for host in self.lab.servers():
            words += ["--real", f"{host.v4}:{SERVER_WEB}"]
        self.controllers.cli(*words, "--predecessor", "client", *more)

    def share(self, vip, host):
        """Returns a server's share of a service's new sessions."""
        address = self.lab[host].v4
        (real,) = (
            r for r in self.controllers.request(NAMES[vip])["real_services"] if r["dip"] == address
        )
        return real["reserved"]["to"] - real["reserved"]["from"] if real["reserved"] else None

    def measure(self, by=1):
        """Returns the mean time of requests from now on and the servers that answered, at least
        `by` of them."""
        self.clients.begin()
        wait_until(
            lambda: self.clients.count() >= ENOUGH and len(self.clients.served()) >= by,
            "clients are served",
        )
        return self.clients.mean_ms(), self.clients.served(), dict(self.clients.failed)

    # ---- the steps -------------------------------------------------------------------------------

    def start(self):
        self.show.step("Six servers, a controller and a management system start; no forwarder")
        for host in self.lab.servers():
            nginx = start_nginx(self.lab, host.name)
            machine = Machine(self.lab, host.name)
            self.cleanup.callback(machine.close)
            machine.put(nginx.pid)
            self.machines[host.name] = machine
        uses = {name: machine.use for name, machine in self.machines.items()}
        reporter = Reporter(self.lab, uses)
        reporter.start()
        self.cleanup.callback(reporter.close)
        self.controllers.start()
        route, create = self.lab.dir / "route.sh", self.lab.dir / "create.sh"
        ip = f"ip -n {self.client.ns.name} route"
        route.write_text(
            '#!/bin/sh\ncase $1 in set) verb=replace ;; *) verb="del" ;; esac\n'
            f'{ip} $verb "$2" via "$3" || test "$verb" = del\n'
        )
        create.write_text(f"#!/bin/sh\necho wanted >>{self.created}\n")
        for script in (route, create):
            script.chmod(0o755)
        argv = [
            MANAGER,
            "--socket",
            self.controllers.socket(),
            "--route",
            route,
            "--create",
            create,
        ]
        self.manager = self.lab.start("c1", "nfv-manager", argv)
        self.manager.wait_for("manager is ready")
        self.show.claim(True, "the controller answers")

    def first_request(self):
        self.show.step("The management system asks for a service; a forwarder is needed first")
        self.ask(WEB)
        wait_until(self.created.exists, "the management system was told")
        self.command("get", "requests")
        self.show.claim(self.state(WEB) == "needs-forwarder", "①–③ recorded; none fits, it is told")
        self.join(1)
        self.await_state(WEB, "routed", "serving")
        self.show.claim(True, "③–⑤ it creates f1, which is picked and confirms; the route is set")
        name = http_get(self.client, WEB, 80).decode().strip()
        self.show.claim(name in self.machines, f"⑥ ⑦ a request is served, by {name}")
        self.await_state(WEB, "serving")
        self.command("describe", "request", "web")

    def join(self, number):
        member = Member(self.lab, self.controllers, number)
        self.members[member.name] = member
        member.join()

    def more(self):
        self.show.step("Two more forwarders join, and two more services are asked for")
        self.join(2)
        self.join(3)

        def measured():
            places = self.controllers.get("get", "placement")["forwarders"]
            return all(place["workers"] >= 0 for place in places)

        wait_until(measured, "the load of all forwarders is measured")
        for vip in (SHOP, MAIL):
            self.ask(vip, "--group", "pair")
            self.await_state(vip, "routed", "serving")
        self.command("get", "placement")
        shop, mail = self.forwarder_of(SHOP), self.forwarder_of(MAIL)
        self.show.claim(shop != mail, f"shop and mail, of one group, are on {shop} and {mail}")
        self.clients = Clients(self.client, VIPS)
        self.clients.start()
        for vip in VIPS:
            self.await_state(vip, "serving")
        wait_until(lambda: self.share(WEB, SLOW), "shares are known")
        self.show.claim(True, "all of them serve")

    def shares(self):
        self.show.step(f"The link to {SLOW} gets {DELAY_MS} ms slower, and {BUSY} computes")
        was = {host: self.share(WEB, host) for host in (SLOW, BUSY)}
        # Its cable is out for a moment, so health checks may mark it down and up again.
        self.link = self.cleanup.enter_context(Link(self.lab, SLOW))
        before, _, failed = self.measure(by=len(self.machines))
        self.show.claim(not failed, f"a request takes {before:.1f} ms, none fails")
        self.link.set(delay_ms=DELAY_MS)
        self.machines[BUSY].burn()
        then, _, failed = self.measure(by=len(self.machines))
        self.show.claim(not failed, f"then {then:.1f} ms, none fails")
        for host in (SLOW, BUSY):
            wait_until(lambda h=host: self.share(WEB, h) < SMALL, f"{host} gets less")
        self.command("describe", "request", "web")
        after, served, failed = self.measure(by=len(self.machines))
        even = self.clients.even_ms()
        self.show.served(served)
        for host in (SLOW, BUSY):
            now = self.share(WEB, host)
            self.show.claim(
                now < SMALL, f"⑧ the share of {host} went from {was[host]:.3f} to {now:.3f}"
            )
            self.rows.append([f"share of {host}", f"{was[host]:.3f}", "", f"{now:.3f}"])
        self.show.claim(
            not failed and after < min(then, even),
            f"a request takes {after:.1f} ms again; with even shares, it would be {even:.1f} ms",
        )
        self.rows.append(["a request", f"{before:.1f} ms", f"{then:.1f} ms", f"{after:.1f} ms"])
        self.link.set(defaults="")
        self.machines[BUSY].rest()
        # Behind an emulator that waits for a core, the link stays the slowest one.
        wait_until(lambda: self.share(WEB, BUSY) > SMALL, f"{BUSY} is back")
        self.show.claim(True, f"{BUSY} has nothing else to do, and its share comes back")

    def forwarder_dies(self):
        victim = self.forwarder_of(WEB)
        hit = [vip for vip in VIPS if self.forwarder_of(vip) == victim]
        spared = [vip for vip in VIPS if vip not in hit]
        self.show.step(f"{victim} and its agent are killed")
        self.clients.begin()
        self.members[victim].die()

        def moved(vip):
            request = self.controllers.request(NAMES[vip])
            return request["forwarder"] != victim and request["state"] in ("routed", "serving")

        for vip in hit:
            wait_until(lambda v=vip: moved(v), f"{NAMES[vip]} has moved")
        self.command("get", "requests")
        lost = sum(self.clients.failed.values())
        _, _, failed = self.measure()
        self.show.claim(not failed, "its services have moved, their routes too, and all serve")
        self.show.claim(
            not any(vip in self.clients.failed for vip in spared),
            f"services of the others ({len(spared)}) did not notice",
        )
        self.rows.append(
            [f"{victim} killed", f"has {len(hit)}", f"{lost} requests fail", "none fails"]
        )

    def controller_dies(self):
        self.show.step("The controller is killed")
        self.controllers.kill("c1")
        _, _, failed = self.measure()
        self.show.claim(not failed, f"nothing happens: {ENOUGH} requests, none fails")
        self.controllers.start()
        for vip in VIPS:
            self.await_state(vip, "routed", "serving")
        alive = [m for m in self.members.values() if m.forwarder.alive()]

        def in_force():
            states = {f["name"]: f["state"] for f in self.controllers.get("get", "forwarders")}
            return all(states[m.name] == "in-force" for m in alive)

        wait_until(in_force, "agents have come back")
        _, _, failed = self.measure()
        self.show.claim(not failed, "it starts again, and knows all")
        self.rows.append(["controller killed", "", "none fails", "none fails"])

    def end(self):
        self.show.step("The management system deletes a service")
        self.clients.close()
        self.controllers.cli("nfv", "delete", NAMES[SHOP])
        self.await_state(SHOP, "removed")
        self.command("get", "requests", "--removed")
        routes = self.client.ns.ip("route show")
        self.show.claim(SHOP not in routes and WEB in routes, "its route is removed, then it is")

    def stop(self):
        self.show.step("All of it stops")
        for member in self.members.values():
            if member.forwarder.alive():
                ended = member.agent.stop() == 0 and member.forwarder.stop() == 0
                self.show.claim(ended, f"{member.name} and its agent ended cleanly")
            member.cleanup()
        self.show.claim(self.manager.stop() == 0, "the management system ended")
        self.show.claim(self.controllers.stop(), "the controller ended cleanly")

    def look_around(self):
        tool = f"build/bin/steelyard --socket {self.controllers.socket()}"
        return {
            "as the client": f"{self.client.ns.enter} curl http://{WEB}/",
            "the controller": f"{tool} get requests",
            "": f"{tool} get placement",
        }


if __name__ == "__main__":
    sys.exit(perform(ControllerDemo, "one controller, many forwarders", __doc__))
