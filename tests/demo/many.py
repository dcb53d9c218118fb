# SPDX-License-Identifier: Apache-2.0
"""A controller, several forwarders that join it, a management system, and clients that count."""

import json
import statistics
import threading
import time
from collections import Counter
from types import SimpleNamespace

from tests.lab import reap
from tests.lab.clients import http_get
from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.steelyard import STEELYARD, Steelyard
from tests.lab.topology import BACK, FRONT, v4

MANAGER = ROOT / "build/bin/nfv-manager"
CONTROLLER = v4(FRONT, 20)
URL = f"https://{CONTROLLER}:7443"


class Controller:
    """A controller on a host of its own, and the command line to it."""

    def __init__(self, lab):
        self.lab, self.process = lab, None
        self.dir = lab.dir / "controller"
        self.dir.mkdir()
        self.socket = self.dir / "c.sock"
        host = lab.network.add_host("manager")
        lab.network.plug(host, "eth0", "front", FRONT, 20)

    def start(self):
        argv = [STEELYARD, "controller", "--listen", f"{CONTROLLER}:7443", "--url", URL]
        argv += ["--state", self.dir / "state", "--socket", self.socket]
        self.process = self.lab.start("manager", "steelyard-controller", argv)
        self.process.wait_for("controller is ready")

    def cli(self, *words, **options):
        return run([STEELYARD, "--socket", self.socket, *words], **options)

    def get(self, *words):
        return json.loads(self.cli(*words, "-o", "json"))

    def request(self, name):
        return self.get("describe", "request", name)


class Member(Steelyard):
    """A forwarder of several in a lab, whose agent has joined the controller."""

    def __init__(self, lab, controller, number):
        self.name, self.controller, self.number = f"f{number}", controller, number
        host = lab.network.add_host(self.name)
        for interface, net in (("front", FRONT), ("back", BACK)):
            lab.network.plug(host, interface, interface, net, 30 + number)
        self.locals = [v4(BACK, 200 + 10 * number + i) for i in range(2)]
        self.next_hop = v4(FRONT, 30 + number)
        # Its configuration comes from the controller.
        super().__init__(lab, SimpleNamespace(text=self.text), host=self.name, sessions=16384)

    def text(self):
        return (
            "version: 1\n"
            f"local_addresses: [{', '.join(self.locals)}]\n"
            f"next_hops: [{self.next_hop}]\n"
            "services: []\n"
        )

    def forwarder_argv(self, *words):
        """As of one alone, but for its instance."""
        argv = super().forwarder_argv(*words)
        argv[argv.index("--instance") + 1] = f"{self.lab.id}-{self.name}"
        return argv

    def start_forwarder(self, wait=True):
        """As of one alone, with a log of its own."""
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
            made = self.controller.cli("token", "create", "--new-forwarder", self.name)
            token.write_text(made)
        argv = [STEELYARD, "agent", "--forwarder", self.forwarder_socket]
        argv += ["--socket", self.agent_socket, "--state", self.dir / "agent"]
        argv += ["--controller", URL, "--token-file", token, "--seccomp", "trap"]
        self.agent = self.lab.start(self.host, f"steelyard-agent-{self.name}", argv)
        self.agent.wait_for("agent is ready")
        return self.agent

    def join(self):
        """Starts both programs, and gives the forwarder its own file."""
        self.start_forwarder()
        self.start_agent()
        self.write_config()
        self.controller.cli("apply", self.file, "--forwarder", self.name)

    def die(self):
        self.agent.kill()
        self.forwarder.kill()


class Clients(threading.Thread):
    """Asks services in turn, by a connection each, until it is closed."""

    def __init__(self, host, vips, pause_s=0.01):
        super().__init__(daemon=True)
        self.host, self.vips, self.pause_s = host, vips, pause_s
        self.lock, self.ending = threading.Lock(), False
        self.begin()

    def begin(self):
        """Counts anew from now on."""
        with self.lock:
            self.times, self.failed = {}, Counter()

    def run(self):
        while not self.ending:
            for vip in self.vips:
                began = time.monotonic()
                try:
                    name = http_get(self.host, vip, 80, timeout_s=5).decode().strip()
                except OSError:
                    name = None
                with self.lock:
                    if name:
                        took = time.monotonic() - began
                        self.times.setdefault(name, []).append(took)
                    else:
                        self.failed[vip] += 1
                time.sleep(self.pause_s)

    def count(self):
        with self.lock:
            return sum(map(len, self.times.values()))

    def served(self):
        with self.lock:
            return {name: len(times) for name, times in self.times.items()}

    def mean_ms(self):
        with self.lock:
            return 1000 * statistics.fmean(t for times in self.times.values() for t in times)

    def even_ms(self):
        """What a request would take on average if all who served had the same share."""
        with self.lock:
            return 1000 * statistics.fmean(map(statistics.fmean, self.times.values()))

    def close(self):
        self.ending = True
        self.join()
