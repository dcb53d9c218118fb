# SPDX-License-Identifier: Apache-2.0
"""Shared by the demos of limits and of shaping: senders, rates as receivers count them, and
goals."""

import contextlib
import json
import time
from dataclasses import dataclass

from tests.demo.show import Show, paint, say
from tests.lab import Server, Service
from tests.lab.datagrams import Sender, Sink, send
from tests.lab.process import CommandFailed
from tests.lab.servers import wait_listening
from tests.lab.steelyard import VIP
from tests.lab.wait import repeating, wait_until

LENGTH_S = 10
SETTLE_S = 2  # until bursts are used up and queues are full
SLICE_S, TRIES = 0.5, 4
FORWARDER_NICE = -10  # as in deploy/
SIZE = 1000  # bytes of an IP packet with UDP
IPERF, SERVER_IPERF, CONNECTIONS = 5201, 15201, 4
# bytes of an IP packet with TCP and time stamps, and of its data
SEGMENT, SEGMENT_DATA = 1500, 1448


def mbits(rate):
    return f"{rate / 1e6:.3f} Mbit/s"


@dataclass
class Flow:
    """A sender of datagrams with its offered Mbit/s."""

    service: str
    offered: float
    host: str = "client"
    tag: int = 1
    kind: int = 0  # TOS

    @property
    def family(self):
        return 6 if self.service.endswith("6") else 4


class Rates:
    """A demo that measures rates: `lab`, `steelyard`, UDP services with PORTS, and `sinks` behind
    them. It continues after a missed goal."""

    PORTS = {}  # by service
    HEAD = []  # of the table
    REASON, DROPPED = "", ""  # of all drops, and their meaning
    SETTLE_S = SETTLE_S
    STEADY = 0.6  # fraction of its target that a sender must send in each half second

    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.rows, self.missed, self.sinks = [], [], {}
        self.senders, self.offered, self.slowest = {}, {}, {}

    def service(self, name, port, protocol, host, server_port):
        family = 6 if name.endswith("6") else 4
        servers = [Server(self.lab[host].address(family), server_port)]
        return Service(name, VIP[family], port, protocol, servers=servers)

    def services(self, tcp):
        """Returns a UDP service for each of PORTS, and one for iperf3."""
        for name, port in self.PORTS.items():
            yield self.service(name, port, "udp", "s1", 10000 + port)
        yield self.service(tcp, IPERF, "tcp", "s2", SERVER_IPERF)

    def start(self, stack):
        """Starts servers, forwarder and agent; a first packet resolves its server's MAC."""
        for name, port in self.PORTS.items():
            sink = Sink(self.lab["s1"], 10000 + port, Flow(name, 0).family)
            self.sinks[name] = stack.enter_context(sink)
        self.lab.start("s2", "iperf3", ["iperf3", "--server", "--port", SERVER_IPERF])
        wait_listening(self.lab["s2"].ns, SERVER_IPERF)
        self.steelyard.start()
        self.steelyard.forwarder.prefer(FORWARDER_NICE)
        for name, sink in self.sinks.items():
            send(self.lab["client"], VIP[Flow(name, 0).family], self.PORTS[name], 1)
            wait_until(lambda sink=sink: sink.packets[1], f"{name} has its first packet")

    def command(self, *words):
        self.show.command("steelyard " + " ".join(words), self.steelyard.cli(*words))

    def change(self, name):
        """Applies the current configuration from a file, and shows its changes."""
        file = self.lab.dir / f"{name}.yaml"
        file.write_text(self.steelyard.config.text())
        done = self.steelyard.cli("diff", file, check=False)
        self.show.command(f"steelyard diff {file.name}", done.stdout)
        self.show.command(f"steelyard apply {file.name}", self.steelyard.cli("apply", file))

    # ---- measuring -------------------------------------------------------------------------------

    @contextlib.contextmanager
    def sending(self, *flows):
        with contextlib.ExitStack() as stack:
            for flow in flows:
                host, port = self.lab[flow.host], self.PORTS[flow.service]
                options = {"tag": flow.tag, "size": SIZE, "kind": flow.kind}
                options["rate"] = flow.offered * 1e6 / 8 / SIZE
                sender = Sender(host, VIP[flow.family], port, **options)
                self.senders[flow.service, flow.tag] = stack.enter_context(sender)
            yield
            self.senders.clear()

    def steady(self, measure):
        """Repeats a measurement until all senders could send at their rates: otherwise the machine
        is measured, not Steelyard."""
        for _ in range(TRIES):
            result = measure()
            held = self.held_up()
            if not held:
                break
            say(f"     {' and '.join(held)} did not come to send all the time: measured once more")
        return result

    def held_up(self):
        """Returns senders that the machine delayed too much."""
        return [
            service
            for (service, tag), rate in self.slowest.items()
            if rate < self.STEADY * 8 * SIZE * self.senders[service, tag].rate
        ]

    def measure(self):
        """Returns {(service, tag): bit/s} of arrivals while others send; `offered` gets the sent
        rates."""
        return self.steady(self.measure_once)

    def measure_once(self):
        time.sleep(self.SETTLE_S)
        with self.watched() as rates:
            time.sleep(LENGTH_S)
        return rates

    @contextlib.contextmanager
    def watched(self):
        """Yields {(service, tag): bit/s} of arrivals within the block. `offered` gets the sent
        rates, `slowest` those of the worst half second."""
        rates, begin, before, sent_before = {}, time.monotonic(), self.received(), self.sent()
        with self.watching():
            yield rates
        now, sent, took = self.received(), self.sent(), time.monotonic() - begin

        def per_second(before, now):
            return {key: 8 * (n - before.get(key, 0)) / took for key, n in now.items()}

        self.offered = per_second(sent_before, sent)
        rates.update(per_second(before, now))

    def watching(self):
        self.slowest, at, sent = {}, time.monotonic(), self.sent()

        def look():
            nonlocal at, sent
            then, before, at, sent = at, sent, time.monotonic(), self.sent()
            for key, size in sent.items():
                rate = 8 * (size - before[key]) / (at - then)
                self.slowest[key] = min(rate, self.slowest.get(key, rate))

        return repeating(look, SLICE_S)

    def received(self):
        """Returns bytes of IP packets by service and tag."""
        return {
            (name, tag): n for name, sink in self.sinks.items() for tag, n in sink.bytes.items()
        }

    def sent(self):
        return {key: SIZE * sender.sent for key, sender in self.senders.items()}

    def offer(self, *keys):
        """Returns the real sending rates as text: a busy machine delays senders."""
        return mbits(sum(self.offered[key] for key in keys))

    def start_iperf(self, seconds):
        argv = ["iperf3", "--client", VIP[4], "--port", IPERF, "--json", "--time", seconds]
        argv += ["--omit", SETTLE_S, "--parallel", CONNECTIONS]
        return self.lab.start("client", f"iperf-{len(self.lab.processes)}", argv)

    def finish_iperf(self, process):
        """Returns bit/s of received IP packets."""
        if process.wait(120):
            raise CommandFailed(process.describe())
        end = json.loads(process.output())["end"]
        return end["sum_received"]["bits_per_second"] * SEGMENT / SEGMENT_DATA

    # ---- the end ---------------------------------------------------------------------------------

    def account(self):
        self.show.step("All of it")
        self.show.table(self.HEAD, self.rows)
        self.command("get", "drops")
        reasons = set(self.steelyard.drops())
        self.meet(reasons == {self.REASON}, self.DROPPED)

    def stop(self):
        self.show.stop(self.steelyard)
        self.show.command("steelyard cleanup", self.steelyard.cleanup())

    def look_around(self):
        return {"as the client": f"{self.lab['client'].ns.enter} iperf3 -c {VIP[4]} -p {IPERF}"}

    # ---- verdicts --------------------------------------------------------------------------------

    def meet(self, met, text):
        """Records a missed goal; the demo continues."""
        mark = paint("✓", "green") if met else paint("✗", "red")
        say(f"   {mark} {text}")
        if not met:
            self.missed.append(text)

    def judge(self, name, offered, received, wanted, goal, rule="its limit"):
        """Judges whether received equals wanted, within `goal` percent."""
        error = 100 * (received / wanted - 1)
        self.rows.append(
            [name, offered, mbits(received), mbits(wanted), f"{error:+.2f} % (goal ±{goal:g} %)"]
        )
        self.meet(abs(error) <= goal, f"{name}: {mbits(received)}, {error:+.2f} % off {rule}")

    def judge_least(self, name, offered, received, wanted, goal):
        """Judges whether received is at least wanted, within `goal` percent."""
        error = 100 * (received / wanted - 1)
        self.rows.append(
            [name, offered, mbits(received), mbits(wanted), f"{error:+.2f} % (goal ≥ -{goal:g} %)"]
        )
        self.meet(error >= -goal, f"{name}: {mbits(received)} of guaranteed {mbits(wanted)}")
