# SPDX-License-Identifier: Apache-2.0
"""Limits on real interfaces: each tenant gets what its limit says, and its neighbours lose nothing.

`make demo DEMO=limits` runs it; with --keep everything stays up for a look around. It reports what
it measures, and its exit status says whether every goal was met.
"""

import contextlib
import json
import sys
import time
from dataclasses import dataclass

from tests.demo.perform import perform
from tests.demo.show import Show, paint, say
from tests.lab import Server, Service
from tests.lab.config import Config
from tests.lab.datagrams import Sender, Sink, send
from tests.lab.process import CommandFailed
from tests.lab.servers import wait_listening
from tests.lab.steelyard import VIP, Steelyard, local_addresses
from tests.lab.wait import wait_until

PICTURE = """
   acme     UDP, IPv4 and IPv6, far too much ──┐                           ┌── s1  counts datagrams
   globex   TCP, iperf3, all that it can ──────┼──▶ VIPs ──[ steelyard ]───┼── s2  iperf3
   hooli    UDP, too many packets ─────────────┤         forwarder + agent └── s3
   initech  UDP, within its limit ─────────────┘

   Rates are those of IP packets, counted by the receiver for 10 s while all send at once.
"""
LENGTH_S = 10
SETTLE_S = 2  # until the bursts are used up
SIZE = 1000  # of an IP packet with UDP
IPERF, SERVER_IPERF, CONNECTIONS = 5201, 15201, 4
SEGMENT, SEGMENT_DATA = 1500, 1448  # of an IP packet with TCP and time stamps, and its data
GOAL_UDP, GOAL_TCP = 1.0, 3.0  # percent
UDP_PORTS = {"acme4": 5001, "acme6": 5001, "hooli": 5002, "initech": 5003, "open": 5004}
HEAD = ["tenant", "offered", "received", "limit", "error"]


def mbits(rate):
    return f"{rate / 1e6:.3f} Mbit/s"


@dataclass
class Flow:
    """A sender of datagrams: Mbit/s that it offers."""

    service: str
    offered: float
    host: str = "client"
    tag: int = 1

    @property
    def family(self):
        return 6 if self.service.endswith("6") else 4


class Limits:
    NETWORK = {"queues": 2}

    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        self.rows, self.missed, self.sinks = [], [], {}
        config = Config(local_addresses(lab.network.back_net))
        for name, port in UDP_PORTS.items():
            config.services.append(self.service(name, port, "udp", "s1", 10000 + port))
        config.services.append(self.service("globex", IPERF, "tcp", "s2", SERVER_IPERF))
        config.tenants = [{"name": "acme", "services": ["acme4", "acme6"]}]
        for name in ("globex", "hooli", "initech"):
            config.tenants.append({"name": name, "services": [name]})
        self.limits = {
            "acme": {"tenant": "acme", "bits_per_second": "8M"},
            "globex": {"tenant": "globex", "bits_per_second": "40M", "burst": "2MB"},
            "hooli": {"tenant": "hooli", "packets_per_second": 400},
            "initech": {"tenant": "initech", "bits_per_second": "4M"},
            "each-client": {"service": "open", "bits_per_second": "4M", "clients": {}},
        }
        self.steelyard = Steelyard(lab, config, workers=2)
        self.set_limits()

    def service(self, name, port, protocol, host, server_port):
        family = 6 if name.endswith("6") else 4
        servers = [Server(self.lab[host].address(family), server_port)]
        return Service(name, VIP[family], port, protocol, servers=servers)

    def set_limits(self):
        self.steelyard.config.limits = [
            {"name": name, "direction": "to-servers"} | limit for name, limit in self.limits.items()
        ]

    def run(self):
        say(PICTURE)
        with contextlib.ExitStack() as stack:
            self.start(stack)
            self.together()
            self.change()
            self.noisy_client()
            self.mark()
            self.account()

    def start(self, stack):
        self.show.step("Servers, a forwarder with two workers, and its agent start")
        for name, port in UDP_PORTS.items():
            family = 6 if name.endswith("6") else 4
            sink = Sink(self.lab["s1"], 10000 + port, family)
            self.sinks[name] = stack.enter_context(sink)
        self.lab.start("s2", "iperf3", ["iperf3", "--server", "--port", SERVER_IPERF])
        wait_listening(self.lab["s2"].ns, SERVER_IPERF)
        self.steelyard.start()
        for name, sink in self.sinks.items():  # a first packet has to ask for its server's MAC
            family = 6 if name.endswith("6") else 4
            send(self.lab["client"], VIP[family], UDP_PORTS[name], 1)
            wait_until(lambda sink=sink: sink.packets[1], f"{name} has its first packet")
        self.command("get", "limits")

    # ---- measuring -------------------------------------------------------------------------------

    def command(self, *words):
        self.show.command("steelyard " + " ".join(words), self.steelyard.cli(*words))

    def stats(self, name, worst=0):
        return self.steelyard.api.call("ListLimits", name=name, worst=worst).limits[0].stats

    @contextlib.contextmanager
    def sending(self, *flows):
        with contextlib.ExitStack() as stack:
            for flow in flows:
                host, port = self.lab[flow.host], UDP_PORTS[flow.service]
                rate = flow.offered * 1e6 / 8 / SIZE
                stack.enter_context(
                    Sender(host, VIP[flow.family], port, tag=flow.tag, size=SIZE, rate=rate)
                )
            yield

    def measure(self):
        """{service: bit/s, {tag: bit/s}} that arrive while others send."""
        time.sleep(SETTLE_S)
        begin, before = time.monotonic(), self.received()
        time.sleep(LENGTH_S)
        now, took = self.received(), time.monotonic() - begin
        return {key: 8 * (n - before.get(key, 0)) / took for key, n in now.items()}

    def received(self):
        return {
            (name, tag): n for name, sink in self.sinks.items() for tag, n in sink.bytes.items()
        }

    def start_iperf(self, seconds):
        argv = ["iperf3", "--client", VIP[4], "--port", IPERF, "--json", "--time", seconds]
        argv += ["--omit", SETTLE_S, "--parallel", CONNECTIONS]
        return self.lab.start("client", f"iperf-{len(self.lab.processes)}", argv)

    def finish_iperf(self, process):
        """bit/s of IP packets, as received."""
        if process.wait(120):
            raise CommandFailed(process.describe())
        end = json.loads(process.output())["end"]
        return end["sum_received"]["bits_per_second"] * SEGMENT / SEGMENT_DATA

    # ---- verdicts --------------------------------------------------------------------------------

    def meet(self, met, text):
        """Notes a goal that was not met; the demo goes on."""
        mark = paint("✓", "green") if met else paint("✗", "red")
        say(f"   {mark} {text}")
        if not met:
            self.missed.append(text)

    def judge(self, name, offered, received, limit, goal):
        error = 100 * (received / limit - 1)
        self.rows.append(
            [name, offered, mbits(received), mbits(limit), f"{error:+.2f} % (goal ±{goal:g} %)"]
        )
        self.meet(abs(error) <= goal, f"{name}: {mbits(received)}, {error:+.2f} % off its limit")

    def lost(self, name, sent_within):
        above = self.stats(name).above.packets
        self.meet(above == 0, f"{name}: {above} packets above its limit, {sent_within}")

    # ---- the steps -------------------------------------------------------------------------------

    def together(self):
        self.show.step(f"All tenants send for {LENGTH_S} s, most of them too much")
        flows = [Flow("acme4", 12), Flow("acme6", 8), Flow("hooli", 10), Flow("initech", 2)]
        process = self.start_iperf(LENGTH_S)
        with self.sending(*flows):
            rates = self.measure()
        globex = self.finish_iperf(process)
        acme = rates["acme4", 1] + rates["acme6", 1]
        self.judge("acme, UDP of both families", mbits(20e6), acme, 8e6, GOAL_UDP)
        self.judge("globex, TCP", "all it can", globex, 40e6, GOAL_TCP)
        self.judge("hooli, 400 packets/s", mbits(10e6), rates["hooli", 1], 400 * 8 * SIZE, GOAL_UDP)
        initech = rates["initech", 1]
        self.rows.append(["initech, UDP", mbits(2e6), mbits(initech), mbits(4e6), "within it"])
        self.lost("initech", "while its neighbours send too much")
        self.command("get", "limits")

    def change(self):
        self.show.step("acme and globex get twice as much, while they send")
        self.limits["acme"]["bits_per_second"] = "16M"
        self.limits["globex"] |= {"bits_per_second": "80M", "burst": "4MB"}
        flows = [Flow("acme4", 12), Flow("acme6", 8)]
        process = self.start_iperf(LENGTH_S + 2 * SETTLE_S)
        with self.sending(*flows):
            time.sleep(SETTLE_S)
            self.set_limits()
            file = self.lab.dir / "twice.yaml"
            file.write_text(self.steelyard.config.text())
            done = self.steelyard.cli("diff", file, check=False)
            self.show.command("steelyard diff twice.yaml", done.stdout)
            self.show.command("steelyard apply twice.yaml", self.steelyard.cli("apply", file))
            rates = self.measure()
        self.finish_iperf(process)  # it has seen both rates
        acme = rates["acme4", 1] + rates["acme6", 1]
        self.judge("acme, changed live", mbits(20e6), acme, 16e6, GOAL_UDP)
        globex = self.finish_iperf(self.start_iperf(LENGTH_S))
        self.judge("globex, TCP, changed live", "all it can", globex, 80e6, GOAL_TCP)

    def noisy_client(self):
        self.show.step("Two clients of one service, each with a bucket: one sends too much")
        noisy, polite = Flow("open", 12, "far", 2), Flow("open", 2, "client", 1)
        with self.sending(noisy, polite):
            rates = self.measure()
        self.judge("a noisy client", mbits(12e6), rates["open", 2], 4e6, GOAL_UDP)
        row = [mbits(2e6), mbits(rates["open", 1]), mbits(4e6), "within it"]
        self.rows.append(["a polite client", *row])
        self.command("get", "limits", "--worst")
        self.command("describe", "limit", "each-client")
        worst = self.stats("each-client", worst=2).worst
        first = ".".join(map(str, worst[0].address))
        self.meet(first == self.lab["far"].v4, f"the noisy client is the first: {first}")
        others = sum(client.above.packets for client in worst[1:])
        self.meet(others == 0, f"{others} packets of the polite one were above its limit")

    def mark(self):
        self.show.step("Above its limit, hooli is marked af13 instead, and nothing is dropped")
        self.limits["hooli"] |= {"action": {"mark": "af13"}}
        self.set_limits()
        self.steelyard.apply()
        sink, before = self.sinks["hooli"], self.stats("hooli")
        sink.classes.clear()
        sender = Sender(self.lab["client"], VIP[4], UDP_PORTS["hooli"], size=SIZE, rate=1250)
        with sender:
            time.sleep(SETTLE_S)
        wait_until(lambda: sum(sink.classes.values()) == sender.sent, "all have come")
        now = self.stats("hooli")
        marked, plain = sink.classes[1, 14 << 2], sink.classes[1, 0]
        say(f"     {sender.sent} sent: {plain} came as they were, {marked} with af13")
        above = now.above.packets - before.above.packets
        self.meet(marked == above > 0, f"the limit counts {above} above it")

    def account(self):
        self.show.step("All of it")
        self.show.table(HEAD, self.rows)
        self.command("get", "drops")
        reasons = set(self.steelyard.drops())
        self.meet(reasons == {"limit-exceeded"}, "all that was dropped was above a limit")

    def stop(self):
        self.show.stop(self.steelyard)
        self.show.command("steelyard cleanup", self.steelyard.cleanup())

    def look_around(self):
        return {"as the client": f"{self.lab['client'].ns.enter} iperf3 -c {VIP[4]} -p {IPERF}"}


if __name__ == "__main__":
    sys.exit(perform(Limits, "limits", __doc__))
