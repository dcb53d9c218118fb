# SPDX-License-Identifier: Apache-2.0
"""Controllers in a lab, each on its own host, and forwarders whose agents join them."""

import json
import shutil
import signal
from types import SimpleNamespace

from tests.lab import clocks, reap
from tests.lab.commands import run_steelyard
from tests.lab.lab import ROOT
from tests.lab.steelyard import STEELYARD, Steelyard
from tests.lab.topology import BACK, FRONT, v4, v6
from tests.lab.wait import DEADLINE_S, wait_until

MANAGER = ROOT / "build/bin/nfv-manager"
PORT, MEMBERS_PORT = 7443, 7444


class Controllers:
    """One controller, or at least three whose etcds form a cluster: c1, c2, … on the front network.

    net: of their addresses. freeze(), cut() and lose_clock() isolate one from the others until
    heal(). clocked: each has its own clock (tests/lab/clocks.py)."""

    def __init__(self, lab, count=1, clocked=False, net=FRONT):
        self.lab, self.dir = lab, lab.dir / "controllers"
        self.binary = clocks.steelyard() if clocked else STEELYARD
        self.dir.mkdir()
        self.names = [f"c{number}" for number in range(1, count + 1)]
        self.processes, self.away = {}, {}  # isolated controllers: how each returns
        self.clocks = clocks.Clocks(self.dir) if clocked else None
        for number, name in enumerate(self.names, 20):
            host = lab.network.add_host(name)
            lab.network.plug(host, "eth0", "front", net, number)
            # Reuses the MAC addresses of earlier controllers: neighbour tables may still hold them.
            host.ns.ip(f"link set eth0 address 02:00:00:00:74:{number}")
        self.key = self.dir / "key"
        if count > 1:
            self.key.write_text(run_steelyard("controller", "new-key"))
            self.key.chmod(0o600)

    @property
    def urls(self):
        return ",".join(map(self.url, self.names))

    def url(self, name):
        return f"https://{self.lab[name].v4}:{PORT}"

    def socket(self, name="c1"):
        return self.dir / f"{name}.sock"

    def start(self, *names):
        """Starts the named controllers, or all, before it waits for any of them: members of a
        cluster wait for each other."""
        names = names or self.names
        for name in names:
            address = self.lab[name].v4
            argv = [self.binary, "controller", "--listen", f"{address}:{PORT}"]
            argv += ["--url", self.url(name), "--socket", self.socket(name)]
            argv += ["--state", self.dir / name]
            if len(self.names) > 1:
                members = (f"{n}=https://{self.lab[n].v4}:{MEMBERS_PORT}" for n in self.names)
                argv += ["--name", name, "--members", ",".join(members)]
                argv += ["--members-key", self.key]
            log, env = f"steelyard-controller-{name}", self.clock_of(name)
            self.processes[name] = self.lab.start(name, log, argv, env)
        for name in names:
            self.processes[name].wait_for("controller is ready", 120)

    def clock_of(self, name):
        """Returns the environment of a program whose clock has this name."""
        return self.clocks.env(name) if self.clocks else None

    def revive(self):
        """Starts killed controllers."""
        if dead := [name for name in self.names if not self.processes[name].alive()]:
            self.start(*dead)

    # ---- faults ----------------------------------------------------------------------------------

    def kill(self, name):
        self.processes[name].kill()
        if name in self.away:
            self.heal()

    def freeze(self, name):
        self.processes[name].send(signal.SIGSTOP)
        self.away[name] = lambda: self.processes[name].send(signal.SIGCONT)

    def cut(self, name):
        """Isolates a controller from agents and other controllers, but not from its own host."""
        self.lab[name].ns.ip("link set eth0 down")
        self.away[name] = lambda: self.lab[name].ns.ip("link set eth0 up")

    def lose_clock(self, name, offset_s):
        """Sets a controller's clock so wrong that it and the others reject each other."""
        self.clocks.set(name, offset_s)
        self.away[name] = lambda: self.clocks.set(name, 0)

    def heal(self):
        while self.away:
            _, back = self.away.popitem()
            back()

    def awake(self):
        """Returns the controllers that are neither killed nor isolated."""
        return [n for n in self.names if self.processes[n].alive() and n not in self.away]

    # ---- commands --------------------------------------------------------------------------------

    def cli(self, *words, at=None, **options):
        """Runs a command at the socket of controller `at`, or of the first one of awake()."""
        socket = self.socket(at or self.awake()[0])
        return run_steelyard("--timeout", "20s", "--socket", socket, *words, **options)

    def get(self, *words, **options):
        return json.loads(self.cli(*words, "-o", "json", **options))

    def try_get(self, *words):
        """Returns None while no controller answers: a leader election is in progress."""
        done = self.cli(*words, "-o", "json", check=False)
        return None if done.returncode else json.loads(done.stdout)

    def request(self, name):
        return self.get("describe", "request", name)

    def await_request(self, name, *states, deadline_s=DEADLINE_S):
        """Waits until a request is in one of the states; returns it."""
        last = []

        def there():
            last[:] = [self.try_get("describe", "request", name)]
            return last[0] and last[0]["state"] in states and last[0]

        return wait_until(there, lambda: f"{name} is {states[0]}, not {last[0]}", deadline_s)

    def token(self, path, forwarder):
        """Writes a token for a forwarder to a file, once a controller issues it."""

        def made():
            done = self.cli("token", "create", "--new-forwarder", forwarder, check=False)
            return not done.returncode and path.write_text(done.stdout)

        wait_until(made, "a controller makes a token")

    def leader(self):
        """Returns the controller that works on requests; None without a leader."""
        url = (self.try_get("get", "placement") or {}).get("leader")
        return next((name for name in self.names if self.url(name) == url), None)

    def stop(self):
        """Stops all of them in order; returns whether each ended cleanly."""
        return all(process.stop() == 0 for process in self.processes.values())

    def close(self):
        """Removes them from the lab."""
        self.heal()
        for process in self.processes.values():
            if process.alive():
                process.kill()
        for name in self.names:
            self.lab.network.remove_host(name)
        shutil.rmtree(self.dir)


class Member(Steelyard):
    """One of several forwarders in a lab, whose agent joins the controllers: f1, f2, …"""

    def __init__(self, lab, controllers, number, **options):
        self.name, self.controllers, self.number = f"f{number}", controllers, number
        host = lab.network.add_host(self.name)
        for interface, net in (("front", FRONT), ("back", BACK)):
            lab.network.plug(host, interface, interface, net, 30 + number)
        self.locals = [v4(BACK, 200 + 10 * number + i) for i in range(2)]
        self.next_hop, self.next_hop6 = v4(FRONT, 30 + number), v6(FRONT, 30 + number)
        # The controllers send its configuration.
        desired = SimpleNamespace(text=self.text)
        super().__init__(lab, desired, host=self.name, sessions=16384, **options)

    def text(self):
        return (
            "version: 1\n"
            f"local_addresses: [{', '.join(self.locals)}]\n"
            f"next_hops: [{self.next_hop}, '{self.next_hop6}']\n"
            "services: []\n"
        )

    def forwarder_argv(self, *words):
        """The arguments of a single forwarder, except for its instance."""
        argv = super().forwarder_argv(*words)
        argv[argv.index("--instance") + 1] = f"{self.lab.id}-{self.name}"
        return argv

    def start_forwarder(self, wait=True):
        """Starts the forwarder with its own log."""
        argv = self.forwarder_argv(*self.forwarder_options())
        reap.note_cleanup(self.lab.dir, self.host, self.forwarder_argv("--cleanup"))
        name = f"steelyard-forwarder-{self.name}"
        self.forwarder = self.lab.start(self.host, name, argv, self.env)
        if wait:
            self.forwarder.wait_for(r"\bready\b")
        return self.forwarder

    def start_agent(self):
        token = self.dir / "token"
        if not token.exists():
            self.controllers.token(token, self.name)
        argv = [STEELYARD, "agent", "--forwarder", self.forwarder_socket]
        argv += ["--socket", self.agent_socket, "--state", self.dir / "agent"]
        argv += ["--controller", self.controllers.urls, "--token-file", token, "--seccomp", "trap"]
        self.agent = self.lab.start(self.host, f"steelyard-agent-{self.name}", argv)
        self.agent.wait_for("agent is ready")
        return self.agent

    def join(self):
        """Starts both programs, and applies the forwarder's own file."""
        self.start_forwarder()
        self.start_agent()
        self.write_config()
        self.controllers.cli("apply", self.file, "--forwarder", self.name)

    def die(self):
        self.agent.kill()
        self.forwarder.kill()
