# SPDX-License-Identifier: Apache-2.0
"""Servers on the stack and on the kernel, and the generator that asks them.

    generator g0 ══ s0 [stack: AF_XDP]        one pair of veth for each server, since an XDP program
              g1 ══ s1 [kernel: epoll]        on an interface slows down what else uses it
              there ══ back                   for frames alone, without TCP; in the same namespace

The generator has the first core, both servers the second; the one that is not asked sleeps. What
the generator sends would be received by the kernel on the generator's core, so that the kernel's
server had two: receive packet steering brings it to the server's core.
"""

import json
import re
from pathlib import Path

from bench import machine
from bench.bed import Bed, Pair, two_cores
from tests.lab.process import Process

LOAD = machine.PROGRAMS / "load/steelyard-load"
REFLECT = machine.PROGRAMS / "steelyard-reflect"
KERNEL = machine.PROGRAMS / "load/steelyard-kernel-server"
MEMORY = 192  # MB of each program's packets
RING = 8192  # packets that wait while a worker has no CPU
PORT = {"echo": 7, "raw": 7000}
# /sys shows the interfaces of the namespace that it was mounted in.
STEER = "mount -t sysfs sysfs /sys && echo {mask:x} > /sys/class/net/{name}/queues/rx-0/rps_cpus"
FIRST, SOURCES = 16, 24  # the last byte of the generator's first address, and how many it may have
ARMS = ("stack", "kernel")


class StackBed(Bed):
    """A pair of veth for each arm."""

    arms = ARMS

    def __init__(self, capacity=10_000):
        super().__init__("stack")
        self.near, self.far = two_cores()
        self.capacity = capacity

    def build(self):
        self.generator, self.server = self.namespaces("generator", "server")
        for number in range(len(self.arms)):
            self.plug(number)
        Pair(self.generator, self.generator, ("there", "back"), "10.66.99")
        self.steer(True)
        self.start_all()

    def start_all(self):
        self.stacks = {name: self.start("stack", name) for name in PORT}
        self.kernels = {name: self.start("kernel", name) for name in PORT}

    def plug(self, number):
        """One pair: 10.66.N.0/24, the generator's own address .1, the kernel's server .2, and the
        stack's .3; sources from .16 on."""
        names, net = (f"g{number}", f"s{number}"), f"10.66.{number}"
        pair = Pair(self.generator, self.server, names, net)
        pair.know((2, 3), range(FIRST, FIRST + SOURCES))
        self.server.sysctl("core.somaxconn", 65535)

    def steer(self, steered):
        """Whether the kernel's server has its core alone; or else, for the kernel's half of
        receiving, the generator's too."""
        mask = 1 << self.far if steered else 0
        for number in range(len(self.arms)):
            self.steer_one(self.server, f"s{number}", mask)

    @staticmethod
    def steer_one(ns, name, mask):
        ns.run(["unshare", "--mount", "sh", "-c", STEER.format(mask=mask, name=name)])

    def start(self, arm, protocol):
        """A server, on the second core."""
        log = self.dir / f"{arm}-{protocol}.log"
        options = ["--echo"] if protocol == "echo" else []
        if arm == "stack" and protocol == "raw":
            return None  # the stack's server has one protocol: see serve()
        if arm == "stack":
            return self.serve(options, log)
        argv = ["taskset", "-c", self.far, KERNEL, "--port", PORT[protocol], *options]
        return self.begin("steelyard-kernel-server", argv, log, "^serving")

    def begin(self, name, argv, log, ready):
        process = Process(name, machine.ahead(self.server.command(argv)), log)
        self.open.callback(process.stop)
        return self.await_start(process, ready)

    def serve(self, options, log):
        argv = [LOAD, "--port", f"s0,ring={RING}", "--cores", self.far, *memory(), *options]
        argv += ["--connections", self.capacity, "--time-wait", "10ms"]
        argv += ["--serve", f"10.66.0.3:{PORT['echo' if options else 'raw']}"]
        return self.begin("steelyard-load-server", argv, log, "^serving")

    def speak(self, protocol):
        """The stack's server has the interface alone: another one for another protocol."""
        for name, process in self.stacks.items():
            if name != protocol and process:
                process.stop()
                self.stacks[name] = None
        if not self.stacks[protocol]:
            log = self.dir / f"stack-{protocol}.log"
            self.stacks[protocol] = self.serve(["--echo"] if protocol == "echo" else [], log)

    def frames(self, seconds):
        """Round trips of frames per second over AF_XDP, without a reader."""
        argv = [REFLECT, "--near", "there", "--far", "back", "--ms", f"{seconds * 1000:.0f}"]
        argv += ["--near-core", self.near, "--far-core", self.far]
        return self.result("steelyard-reflect", argv)["value"]

    def resident(self):
        """Bytes of memory of the stack's server, with its huge pages."""
        (process,) = filter(None, self.stacks.values())
        text = Path(f"/proc/{process.pid}/status").read_text()
        return sum(
            1024 * int(n) for n in re.findall(r"^(?:VmRSS|HugetlbPages):\s+(\d+)", text, re.M)
        )

    def ask(self, arm, protocol, sources=8, **options):
        """What the generator measures of a server."""
        if arm == "stack":
            self.speak(protocol)
        number = self.arms.index(arm)
        server = f"10.66.{number}.{3 - number}:{PORT[protocol]}"
        return self.generate(number, server, protocol, sources, **options)

    def generate(self, number, server, protocol, sources, **options):
        argv = [
            LOAD,
            "--port",
            f"g{number},ring={RING}",
            "--cores",
            self.near,
            *memory(),
            "--json",
            "-",
        ]
        argv += ["--quiet", "--protocol", protocol, "--to", server]
        argv += ["--source", f"10.66.{number}.{FIRST}-10.66.{number}.{FIRST + sources - 1}"]
        for name, value in options.items():
            argv += ["--" + name.replace("_", "-")] + ([] if value is True else [value])
        return self.result("steelyard-load", argv)

    def result(self, name, argv):
        """What a program on the generator's host prints."""
        argv = machine.ahead(self.generator.command(argv))
        process = Process(name, argv, self.dir / f"{name}.log")
        machine.prefer(process.pid)
        if process.wait(deadline_s=300):
            raise machine.Failed(process.describe())
        output = process.output()
        return json.loads(output[output.index("{") :])


def memory():
    enough = machine.pages.Pool(2 * machine.MB).free() * 2 >= 3 * MEMORY
    return ["--memory", MEMORY] if enough else ["--no-huge", "--memory", 2 * MEMORY]


def lost(results):
    """Requests without a right answer."""
    return sum(results["errors"].values())
