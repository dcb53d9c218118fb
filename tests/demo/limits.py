# SPDX-License-Identifier: Apache-2.0
"""Limits on real interfaces: each tenant gets its limit's rate, and its neighbours lose nothing.

`make demo DEMO=limits` runs it; with --keep everything stays up for inspection. Its exit status
says whether every goal was met."""

import contextlib
import sys
import time

from tests.demo.perform import perform
from tests.demo.rates import LENGTH_S, SETTLE_S, SIZE, Flow, Rates, mbits
from tests.demo.show import say
from tests.lab.config import Config
from tests.lab.datagrams import Sender
from tests.lab.steelyard import VIP, Steelyard, local_addresses
from tests.lab.wait import wait_until

PICTURE = """
   acme     UDP, IPv4 and IPv6, far too much ──┐                           ┌── s1  counts datagrams
   globex   TCP, iperf3, all that it can ──────┼──▶ VIPs ──[ steelyard ]───┼── s2  iperf3
   hooli    UDP, too many packets ─────────────┤         forwarder + agent └── s3
   initech  UDP, within its limit ─────────────┘

   Rates are those of IP packets, counted by the receiver for 10 s while all send at once.
   All of it takes about a minute.
"""
GOAL_UDP, GOAL_TCP = 1.0, 3.0  # percent
ACMES = ("acme4", 1), ("acme6", 1)


class Limits(Rates):
    NETWORK = {"queues": 2}
    HEAD = ["tenant", "offered", "received", "limit", "error"]
    REASON, DROPPED = "limit-exceeded", "all that was dropped was above a limit"
    STEADY = 0.85  # buckets hold a quarter of a second
    PORTS = {"acme4": 5001, "acme6": 5001, "hooli": 5002, "initech": 5003, "open": 5004}

    def __init__(self, lab):
        super().__init__(lab)
        config = Config(local_addresses(lab.network.back_net))
        config.services = list(self.services("globex"))
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

    def set_limits(self):
        self.steelyard.config.limits = [
            {"name": name, "direction": "to-servers"} | limit for name, limit in self.limits.items()
        ]

    def run(self):
        say(PICTURE)
        with contextlib.ExitStack() as stack:
            self.start(stack)
            self.together()
            self.change_live()
            self.noisy_client()
            self.mark()
            self.account()

    def start(self, stack):
        self.show.step("Servers, a forwarder with two workers, and its agent start")
        super().start(stack)
        self.command("get", "limits")

    def stats(self, name, worst=0):
        return self.steelyard.api.call("ListLimits", name=name, worst=worst).limits[0].stats

    def lost(self, name, sent_within):
        above = self.stats(name).above.packets
        self.meet(above == 0, f"{name}: {above} packets above its limit, {sent_within}")

    # ---- the steps -------------------------------------------------------------------------------

    def together(self):
        self.show.step(f"All tenants send for {LENGTH_S} s, most of them too much")
        flows = [Flow("acme4", 12), Flow("acme6", 8), Flow("hooli", 10), Flow("initech", 2)]

        def all_send():
            process = self.start_iperf(LENGTH_S)
            rates = self.measure_once()
            return rates, self.finish_iperf(process)

        with self.sending(*flows):
            rates, globex = self.steady(all_send)
        acme = rates["acme4", 1] + rates["acme6", 1]
        self.judge("acme, UDP of both families", self.offer(*ACMES), acme, 8e6, GOAL_UDP)
        self.judge("globex, TCP", "all it can", globex, 40e6, GOAL_TCP)
        offered = self.offer(("hooli", 1))
        self.judge("hooli, 400 packets/s", offered, rates["hooli", 1], 400 * 8 * SIZE, GOAL_UDP)
        initech = rates["initech", 1]
        self.rows.append(
            ["initech, UDP", self.offer(("initech", 1)), mbits(initech), mbits(4e6), "within it"]
        )
        self.lost("initech", "while its neighbours send too much")
        self.command("get", "limits")

    def change_live(self):
        self.show.step("acme and globex get twice as much, while they send")
        self.limits["acme"]["bits_per_second"] = "16M"
        self.limits["globex"] |= {"bits_per_second": "80M", "burst": "4MB"}
        flows = [Flow("acme4", 12), Flow("acme6", 8)]
        process = self.start_iperf(LENGTH_S + 2 * SETTLE_S)
        with self.sending(*flows):
            time.sleep(SETTLE_S)
            self.set_limits()
            self.change("twice")
            rates = self.measure()
        self.finish_iperf(process)  # the list has both rates
        acme = rates["acme4", 1] + rates["acme6", 1]
        self.judge("acme, changed live", self.offer(*ACMES), acme, 16e6, GOAL_UDP)
        globex = self.finish_iperf(self.start_iperf(LENGTH_S))
        self.judge("globex, TCP, changed live", "all it can", globex, 80e6, GOAL_TCP)

    def noisy_client(self):
        self.show.step("Two clients of one service, each with a bucket: one sends too much")
        noisy, polite = Flow("open", 12, "far", 2), Flow("open", 2, "client", 1)
        with self.sending(noisy, polite):
            rates = self.measure()
        self.judge("a noisy client", self.offer(("open", 2)), rates["open", 2], 4e6, GOAL_UDP)
        row = [self.offer(("open", 1)), mbits(rates["open", 1]), mbits(4e6), "within it"]
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
        sender = Sender(self.lab["client"], VIP[4], self.PORTS["hooli"], size=SIZE, rate=1250)
        with sender:
            time.sleep(SETTLE_S)
        wait_until(lambda: sum(sink.classes.values()) == sender.sent, "all have come")
        now = self.stats("hooli")
        marked, plain = sink.classes[1, 14 << 2], sink.classes[1, 0]
        say(f"     {sender.sent} sent: {plain} came as they were, {marked} with af13")
        above = now.above.packets - before.above.packets
        self.meet(marked == above > 0, f"the limit counts {above} above it")


if __name__ == "__main__":
    sys.exit(perform(Limits, "limits", __doc__))
