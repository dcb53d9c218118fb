# SPDX-License-Identifier: Apache-2.0
"""The synthetic server, and the generator that asks it:

    generator g0 ══ s0 steelyard-priority-server     a pair of veth; 10.67.0.0/24

The server has the second core, the generator the first. The server's thread for long requests,
where an experiment wants one, is on the server's core at the lowest priority: its requests sleep.
"""

import json

from bench import machine
from bench.bed import Bed, Pair, two_cores
from bench.stack_bed import FIRST, LOAD, memory
from tests.lab import wait_until
from tests.lab.process import Process

SERVER = machine.PROGRAMS / "priority/steelyard-priority-server"
ADDRESS, PORT = "10.67.0.3", 7000
SOURCES = 8
RING = 8192  # packets that wait while a worker has no CPU


def join(near, far, server):
    """10.67.0.0/24: p0, the generator's, and p1, with the last byte of the server's address."""
    Pair(near, far, ("p0", "p1"), "10.67.0").know([server], range(FIRST, FIRST + SOURCES))


def generator_argv(interface, core, sources, to, options):
    """steelyard-load's command line; an option with a list is given several times."""
    argv = [LOAD, "--port", f"{interface},ring={RING}", "--cores", core, *memory()]
    argv += ["--json", "-", "--quiet", "--source", sources, "--to", to]
    for name, value in options.items():
        word = "--" + name.replace("_", "-")
        for one in value if isinstance(value, list) else [value]:
            argv += [word] if one is True else [word, one]
    return argv


def generate(ns, argv, log):
    """What the generator measures."""
    process = Process("steelyard-load", machine.ahead(ns.command(argv)), log)
    machine.prefer(process.pid)
    if process.wait(deadline_s=120):
        raise machine.Failed(process.describe())
    output = process.output()
    return json.loads(output[output.index("{") :])


class PriorityBed(Bed):
    """aside: with a thread for long requests."""

    def __init__(self, aside=False):
        super().__init__("priority")
        self.near, self.far = two_cores()
        self.aside = aside

    def build(self):
        self.generator, self.host = self.namespaces("generator", "server")
        join(self.generator, self.host, 3)
        self.server = self.start()

    def start(self):
        argv = [SERVER, "--interface", "p1", "--address", ADDRESS, "--port", PORT]
        argv += ["--core", self.far, *(["--aside", self.far] if self.aside else []), *memory()]
        command = machine.ahead(self.host.command(argv))
        process = Process(SERVER.name, command, self.dir / "server.log", commanded=True)
        self.open.callback(process.kill)
        return self.await_start(process, "^serving")

    def order(self, line):
        """One order; returns the line that answers it."""
        before = self.server.output().count("\n")
        self.server.write_line(line)
        wait_until(
            lambda: self.server.output().count("\n") > before or not self.server.alive(),
            f"the server answers {line!r}",
        )
        answers = self.server.output().splitlines()[before:]
        if not answers or answers[0].startswith("error"):
            raise machine.Failed(f"{line}: {answers or self.server.describe()}")
        return answers[0]

    def use(self, **setting):
        self.order("use " + " ".join(f"{name}={value}" for name, value in setting.items()))

    def ask(self, setting, **options):
        """What the generator and the server have measured of one run with a setting; None: as the
        server has been."""
        if setting:
            self.use(**setting)
        self.order("report")
        sources = f"10.67.0.{FIRST}-10.67.0.{FIRST + SOURCES - 1}"
        argv = generator_argv("p0", self.near, sources, f"{ADDRESS}:{PORT}", options)
        log = self.dir / "load.log"
        seen = generate(self.generator, [*argv, "--stamp"], log)
        seen["server"] = json.loads(self.order("report"))
        return seen


def p99(seen, name):
    """Of a class, in µs, since it was sent."""
    (found,) = (one for one in seen["classes"] if one["name"] == name)
    return (found.get("since_sent_us") or found["latency_us"])["p99"]


def lost(seen):
    """Requests without a right answer."""
    return sum(seen["errors"].values())
