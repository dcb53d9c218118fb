# SPDX-License-Identifier: Apache-2.0
"""Shaping on real interfaces: a port keeps its rate, tenants, services and classes get their parts
of it, and the high class goes first.

`make demo DEMO=shaping` runs it; with --keep everything stays up for inspection. Its exit status
says whether every goal was met.
"""

import contextlib
import re
import sys
import time

from tests.demo.perform import perform
from tests.demo.rates import LENGTH_S, SETTLE_S, TRIES, Flow, Rates, mbits
from tests.demo.show import say
from tests.lab.config import Config
from tests.lab.delays import Delays, share, start_stamped
from tests.lab.process import run
from tests.lab.steelyard import VIP, Steelyard, local_addresses

PICTURE = """
   gold, bulk  UDP of tenant acme ───────────┐                                   ┌── s1  counts
   globex      TCP, iperf3 ──────────────────┼──▶ VIPs ──[ steelyard ]──shaped───┼── s2  iperf3
   bulk6       UDP over IPv6, tenant hooli ──┤         forwarder + agent  port   └── s3
   phone       UDP of the high class ────────┘

   Everybody sends too much, and the port to the servers is the narrow place. Rates are those of IP
   packets: of the port as the servers' interfaces count them, of services as their servers do.
   All of it takes about two minutes.
"""
GOAL = 3.0  # percent
# Minimum ratio of the low class's median to the high class's median and p99. Programs that wait for
# a core delay some packets of both classes.
SOONER, SOONER_P99 = 10, 1
PORT, RATE, MORE = "back", 20_000_000, 25_000_000
ACME, GOLD, GLOBEX, VOICE = 10_000_000, 6_000_000, 4_000_000, 2_000_000
# All programs share a few cores. A delayed worker catches up within the burst, and queues last
# while a sender waits.
BURST, QUEUE = "1MB", 1000
EF = 46 << 2
ACMES = ("gold", 1), ("bulk", 1)
PROBE, PROBES, PROBES_S = 5005, 1600, 200  # port, datagrams, datagrams per second
HIGH, LOW = 1, 2
ETHERNET = 14  # bytes of a frame's header


class Shaping(Rates):
    HEAD = ["who", "offered", "received", "rate", "error"]
    REASON, DROPPED = "shaping-full", "all that was dropped found its queue full"
    SETTLE_S = 5  # until bursts are used up and queues are full
    PORTS = {"gold": 5001, "bulk": 5002, "bulk6": 5003, "phone": 5004}

    def __init__(self, lab):
        super().__init__(lab)
        config = Config(local_addresses(lab.network.back_net))
        config.services = list(self.services("globex"))
        config.services.append(self.service("probe", PROBE, "udp", "s3", PROBE))
        config.tenants = [
            {"name": "acme", "services": ["gold", "bulk"]},
            {"name": "globex", "services": ["globex"]},
            {"name": "hooli", "services": ["bulk6", "probe"]},
        ]
        self.steelyard = Steelyard(lab, config, workers=1)
        self.shape(RATE, ACME)

    def shape(self, rate, acme):
        voice = {"name": "voice", "dscp": ["ef"], "priority": 0, "maximum": VOICE}
        port = {"port": PORT, "rate": rate, "count": "l3", "burst": BURST}
        port["classes"] = [voice | {"queue": QUEUE}, {"name": "rest", "queue": QUEUE}]
        port["tenants"] = [
            {"tenant": "acme", "guaranteed": acme},
            {"tenant": "globex", "guaranteed": GLOBEX, "maximum": GLOBEX},
            {"tenant": "hooli", "weight": 100},
        ]
        # By weight, bulk and hooli get nearly everything that is not guaranteed: gold and acme get
        # only their guarantees.
        port["services"] = [
            {"service": "gold", "guaranteed": GOLD},
            {"service": "bulk", "weight": 100},
        ]
        self.steelyard.config.shaping = [port]

    def run(self):
        say(PICTURE)
        with contextlib.ExitStack() as stack:
            self.show.step("Servers, a forwarder with one worker, and its agent start")
            self.start(stack)
            self.command("describe", "shaping", PORT)
            self.together()
            self.alone()
            self.high_class()
            self.delays(stack)
            self.change_live()
            self.account()

    # ---- measuring -------------------------------------------------------------------------------

    def arrived(self, *hosts):
        """Returns bytes of IP packets that servers' interfaces have received."""
        total = 0
        for host in hosts:
            text = run(self.lab[host].ns.command(["cat", "/proc/net/dev"]))
            size, packets = re.search(r"eth0: *(\d+) +(\d+)", text).groups()
            total += int(size) - ETHERNET * int(packets)
        return total

    def received(self):
        """Also counts arrivals on interfaces: of all servers, and of the one that only iperf3
        uses."""
        return super().received() | {
            "port": self.arrived("s1", "s2", "s3"),
            "tcp": self.arrived("s2"),
        }

    def low(self):
        """Returns the rates that all senders offer in the low class."""
        return [Flow("gold", 8), Flow("bulk", 10), Flow("bulk6", 14)]

    def all_send(self, *more, change=None):
        """Returns the rates while all send."""
        process = self.start_iperf(TRIES * (LENGTH_S + self.SETTLE_S) + SETTLE_S)
        with self.sending(*self.low(), *more):
            if change:
                time.sleep(SETTLE_S)
                change()
            rates = self.measure()
        process.stop()
        return rates

    def judge_acme(self, rates, what, wanted):
        acme = rates["gold", 1] + rates["bulk", 1]
        self.judge_least(f"tenant acme{what}", self.offer(*ACMES), acme, wanted, GOAL)

    # ---- the steps -------------------------------------------------------------------------------

    def together(self):
        self.show.step(f"Everybody sends for {LENGTH_S} s, and more than the port has")
        rates = self.all_send()
        offered = self.offer(*self.offered) + " and TCP"
        self.judge("the port", offered, rates["port"], RATE, GOAL, "its rate")
        self.judge_acme(rates, ", guaranteed", ACME)
        offered = self.offer(("gold", 1))
        self.judge_least("its service gold", offered, rates["gold", 1], GOLD, GOAL)
        self.judge("tenant globex, TCP", "all it can", rates["tcp"], GLOBEX, GOAL, "its maximum")
        hooli = rates["bulk6", 1]
        row = [self.offer(("bulk6", 1)), mbits(hooli), "what is left", ""]
        self.rows.append(["tenant hooli, weight 100", *row])
        self.command("get", "shaping")

    def alone(self):
        self.show.step("hooli alone: what others do not use is for it")
        with self.sending(Flow("bulk6", 26)):
            rates = self.measure()
        offered = self.offer(("bulk6", 1))
        self.judge("tenant hooli, alone", offered, rates["bulk6", 1], RATE, GOAL, "the port")

    def high_class(self):
        self.show.step("The high class floods, too: it goes first, up to its maximum")
        rates = self.all_send(Flow("phone", 6, kind=EF))
        offered = self.offer(("phone", 1))
        self.judge("class voice", offered, rates["phone", 1], VOICE, GOAL, "its maximum")
        self.judge_acme(rates, " beside it", ACME)

    def delays(self, stack):
        self.show.step("How long packets take, of the high class alone, and while all others flood")
        delays = stack.enter_context(Delays(self.lab["s3"], PROBE))
        alone = self.probe(delays, HIGH)
        with self.sending(*self.low()):
            time.sleep(self.SETTLE_S)
            beside = self.steady(lambda: self.probe(delays, HIGH, LOW))
        low = beside[LOW]
        rows = [("high class, alone", alone[HIGH]), ("high class, flooded", beside[HIGH])]
        rows.append(("low class, flooded", low))
        head = ["", "arrived", "median", "p99"]
        self.show.table(head, [[name, *self.delay_cells(ms)] for name, ms in rows])
        self.judge_delays(beside[HIGH], low)

    def probe(self, delays, *tags):
        """Returns {tag: milliseconds} of datagrams that are sent now."""
        delays.ms.clear()
        senders = []
        for tag in tags:
            kind = EF if tag == HIGH else 0
            one = start_stamped(self.lab, "far", VIP[4], PROBE, tag, PROBES_S, PROBES, kind)
            senders.append(one)
        with self.watched():
            for sender in senders:
                sender.wait(120)
        time.sleep(SETTLE_S)  # until the last packets of the low class have left their queue
        return {tag: list(delays.ms[tag]) for tag in tags}

    def delay_cells(self, ms):
        if not ms:
            return [f"0 of {PROBES}", "-", "-"]
        shares = [f"{share(ms, part):.2f} ms" for part in (0.5, 0.99)]
        return [f"{len(ms)} of {PROBES}", *shares]

    def judge_delays(self, high, low):
        self.meet(len(high) == PROBES, f"high class: {len(high)} of {PROBES} packets arrived")
        self.meet(bool(low), f"low class: {len(low)} of {PROBES} packets arrived")
        if not (high and low):
            return
        low_median = share(low, 0.5)
        for name, part, sooner in (("median", 0.5, SOONER), ("p99", 0.99, SOONER_P99)):
            ms = share(high, part)
            times = f"{low_median / ms:.0f} times below the low class's median"
            self.meet(ms * sooner <= low_median, f"high class: {name} of {ms:.2f} ms, {times}")

    def change_live(self):
        self.show.step("The port and acme get a quarter more, while all send")

        def change():
            self.shape(MORE, ACME * 5 // 4)
            self.change("more")

        rates = self.all_send(change=change)
        offered = self.offer(*self.offered) + " and TCP"
        self.judge("the port, changed live", offered, rates["port"], MORE, GOAL, "its rate")
        self.judge_acme(rates, ", changed live", ACME * 5 // 4)


if __name__ == "__main__":
    sys.exit(perform(Shaping, "shaping", __doc__))
