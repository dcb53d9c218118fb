# SPDX-License-Identifier: Apache-2.0
"""Clients are served while the balancer is flooded: a table of what they notice, flood by flood.

`make demo DEMO=attack` runs it; with --keep everything stays up for inspection. Its exit status
says whether every goal was met."""

import contextlib
import os
import subprocess
import sys
import time
from dataclasses import dataclass

from tests.demo.perform import perform
from tests.demo.show import Show, paint, say
from tests.lab.clients import finish_wrk, start_wrk
from tests.lab.flood import FLOOD_NICE, finish_flood, provide_internet, received, start_flood
from tests.lab.process import CommandFailed
from tests.lab.servers import start_dns, start_nginx
from tests.lab.steelyard import (
    AGENT_NICE,
    DNS,
    FORWARDER_NICE,
    VIP,
    WEB,
    Steelyard,
    web_and_dns,
)
from tests.lab.traffic import SlowClients, Traffic, finish_paced, paced, start_paced

PICTURE = """
   wrk, requests at a steady pace ─┐                              ┌── s1  nginx and a DNS server
   open connections, downloads ────┼──▶ VIPs ──[ steelyard ]──────┼── s2
   the flood, forged sources ──────┘           forwarder + agent  └── s3

   The flood arrives in the forwarder's own receive queue, among the clients' packets. A request
   succeeds if the whole answer comes within 3 s. Delays count from the time that a request was
   planned for. A worker has a core where the machine has two; all others share the first one.
"""
HTTP, DOWNLOADS, UDP = 500, 4, 100
PACE, HOST_PACE = 100, 20  # requests per second, to the VIPs and to the forwarder's host
ASKED, ASK_WITHIN_S = 5, 3  # requests to the agent during a load, one per second
LENGTH_S = 10  # of each load
SETTLE_S = 3  # of the flood before the load starts
RECOVERY_S = 120  # at most, after a flood
HOST_WEB = 8099
SLOW_CLIENTS, SLOW_SOURCES = 12000, 64
GOAL, GOAL_RATE = 0.999, 500_000
HEAD = [
    "",
    "rate",
    "lost",
    "paced",
    "wrk",
    "host",
    "control",
    "p99 before",
    "during",
    "host p99",
    "gone",
    "well after",
]


@dataclass
class Flood:
    name: str
    kind: str
    to: str
    port: str
    named: str  # in `get attacks`


FLOODS = (
    Flood("SYN", "syn", VIP[4], str(WEB), "syn-flood"),
    Flood("SYN, IPv6", "syn", VIP[6], str(WEB), "syn-flood"),
    Flood("UDP", "udp", VIP[4], str(DNS), "udp-flood"),
    Flood("UDP, no service", "udp", VIP[4], "1024-65535", "no-service"),
    Flood("ACK", "ack", VIP[4], str(WEB), "stray-tcp"),
    Flood("RST", "rst", VIP[4], str(WEB), "stray-tcp"),
    Flood("FIN", "fin", VIP[4], str(WEB), "stray-tcp"),
    Flood("fragments", "fragment,first-fragment", VIP[4], str(DNS), "fragment-flood"),
    Flood("ICMP", "icmp", VIP[4], "1", "icmp-flood"),
)


@contextlib.contextmanager
def on_cores(cores):
    """Programs that start within the block run there."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, cores)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def percent(share):
    """Rounds down: 100 % means all."""
    return f"{int(share * 10000) / 100:.2f} %"


def ms(value):
    return f"{value:.0f} ms"


def short(number):
    return f"{number / 1e6:.2f} M" if number >= 1e6 else f"{number / 1e3:.0f} k"


@dataclass
class Served:
    """Results of a load."""

    paced: dict
    host: dict  # to a web server on the forwarder's host, which stands for ssh
    wrk: tuple  # Load: one connection per request, and lasting ones
    control: list  # seconds until agent and forwarder answered; None: no answer

    @property
    def share(self):
        return self.paced["answered"] / self.paced["planned"]

    @property
    def host_share(self):
        return self.host["answered"] / self.host["planned"]

    @property
    def control_share(self):
        return sum(took is not None for took in self.control) / len(self.control)

    @property
    def wrk_share(self):
        failed = sum(load.failed for load in self.wrk)
        asked = sum(load.requests + sum(load.errors.values()) for load in self.wrk)
        return 1 - failed / asked if asked else 0.0

    @property
    def shares(self):
        """Returns shares of successful requests by kind. All must reach the goal."""
        return {
            "requests": min(self.share, self.wrk_share),
            "requests to the host": self.host_share,
            "questions to the control socket": self.control_share,
        }


class Attack:
    def __init__(self, lab):
        self.lab, self.show = lab, Show()
        config = web_and_dns(lab.network)
        # Capacity for moments in which a worker has no CPU: clients, servers and the flood share
        # it.
        self.steelyard = Steelyard(lab, config, sessions=0, ring=8192)
        self.traffic = Traffic(lab, HTTP, DOWNLOADS, UDP, size_mb=64)
        cores = sorted(os.sched_getaffinity(0))
        self.all_cores, self.others, self.worker = set(cores), {cores[0]}, {cores[-1]}
        self.rows, self.missed, self.gone = [], [], 0

    def run(self):
        say(PICTURE)
        os.sched_setaffinity(0, self.others)
        self.start()
        self.round(1)
        self.show.step("Restart with 2 workers; all connections stay")
        with on_cores(self.all_cores):
            self.steelyard.restart_forwarder(workers=2).prefer(FORWARDER_NICE)
        self.steelyard.wait_reconnected()
        self.claim_whole()
        self.round(2)
        self.account()

    def start(self):
        self.show.step("Three servers, a forwarder with one worker and its agent start")
        for host in self.lab.servers():
            start_nginx(self.lab, host.name)
            start_dns(self.lab, host.name)
        start_nginx(self.lab, "forwarder", HOST_WEB)
        for n in range(SLOW_SOURCES):
            self.lab["client"].ns.ip(f"address add 10.0.0.{101 + n}/24 dev eth0")
        provide_internet(self.lab)
        self.traffic.provide()
        with on_cores(self.worker):
            self.steelyard.start_forwarder().prefer(FORWARDER_NICE)
        self.steelyard.start_agent().prefer(AGENT_NICE)
        self.steelyard.wait_in_sync()
        self.steelyard.wait_all_up()
        report = self.traffic.start()
        self.show.claim(
            not report["failures"],
            f"{HTTP} HTTP connections, {DOWNLOADS} downloads and {UDP} UDP flows are open",
        )

    # ---- loads -----------------------------------------------------------------------------------

    def load(self):
        """Runs all loads at once, for LENGTH_S."""
        lab, url = self.lab, f"http://{VIP[4]}/"
        wrk = [
            start_wrk(lab, url, 0, 4, keep_alive, seconds=LENGTH_S, timeout_s=3)
            for keep_alive in (False, True)
        ]
        host_web = [f"{lab['forwarder'].v4}:{HOST_WEB}"]
        host = start_paced(lab, HOST_PACE, LENGTH_S, host_web)
        steady = start_paced(lab, PACE, LENGTH_S)
        control = [self.ask() for _ in range(ASKED)]
        return Served(
            finish_paced(steady), finish_paced(host), tuple(map(finish_wrk, wrk)), control
        )

    def ask(self):
        """Returns the seconds until `get status` was answered, which also queries the forwarder; or
        None."""
        began = time.monotonic()
        try:
            self.steelyard.cli("get", "status", deadline_s=ASK_WITHIN_S)
        except (CommandFailed, subprocess.TimeoutExpired):
            return None
        took = time.monotonic() - began
        time.sleep(max(0, 1 - took))
        return took

    def round(self, workers):
        label = f"{workers} worker{'s' * (workers > 1)}"
        self.show.step(f"Calm, {label}")
        before = self.load()
        self.report(before)
        for flood in FLOODS:
            self.show.step(f"{flood.name} flood, {label}")
            self.under_flood(flood, label, before)
        self.show.step(f"{SLOW_CLIENTS} clients that never finish their request, {label}")
        self.under_slow_clients(label, before)

    def report(self, served):
        failures = served.paced["failures"]
        text = ", ".join(f"{count} {nature}" for nature, count in failures.items())
        say(
            f"     {served.paced['answered']} of {served.paced['planned']} paced requests answered"
            f"{f' ({text})' if text else ''}; p50 {ms(served.paced['p50_ms'])}, "
            f"p99 {ms(served.paced['p99_ms'])}; wrk {sum(w.requests for w in served.wrk)} answers, "
            f"{sum(w.failed for w in served.wrk)} failures"
        )

    def under_flood(self, flood, label, before):
        drops, taken = self.steelyard.drops(), received(self.lab)
        process = start_flood(self.lab, flood.kind, flood.to, flood.port)
        process.prefer(FLOOD_NICE)
        time.sleep(SETTLE_S)
        during = self.load()
        listed = {attack["kind"] for attack in self.steelyard.get("attacks")}
        self.show.command("steelyard get attacks", self.steelyard.cli("get", "attacks"))
        sent = finish_flood(process)
        taken = [now - then for now, then in zip(received(self.lab), taken, strict=True)]
        rate = sent["sent"] / sent["seconds"]
        self.report(during)
        self.report_drops(drops)
        lost = taken[1] / max(1, sum(taken))
        self.judge(f"{flood.name}, {label}", before, during, short(rate) + "/s", percent(lost))
        self.meet(flood.named in listed, f"{flood.name}, {label}: reported as {flood.named}")
        self.meet(rate >= GOAL_RATE, f"{flood.name}, {label}: flood of {short(rate)}/s")

    def under_slow_clients(self, label, before):
        sources = [f"10.0.0.{101 + n}" for n in range(SLOW_SOURCES)]
        drops = self.steelyard.drops()
        with SlowClients(self.lab, SLOW_CLIENTS, sources) as slow:
            during = self.load()
            held = slow.count_open()
        self.report(during)
        self.report_drops(drops)
        self.judge(f"slow clients, {label}", before, during, f"{held} held", "")

    def report_drops(self, before):
        new = {name: n - before.get(name, 0) for name, n in self.steelyard.drops().items()}
        most = sorted(((n, name) for name, n in new.items() if n > 0), reverse=True)[:4]
        say("     dropped: " + (", ".join(f"{n} {name}" for n, name in most) or "nothing"))

    # ---- verdicts --------------------------------------------------------------------------------

    def meet(self, met, text):
        """Records a missed goal; the demo continues."""
        mark = paint("✓", "green") if met else paint("✗", "red")
        say(f"   {mark} {text}")
        if not met:
            self.missed.append(text)

    def judge(self, name, before, during, rate, lost):
        well_after = self.recover()
        report = self.traffic.step()
        gone = sum(report["failures"].values()) - self.gone
        self.gone += gone
        self.rows.append(
            [name, rate, lost, percent(during.share), percent(during.wrk_share)]
            + [percent(during.host_share), percent(during.control_share)]
            + [ms(before.paced["p99_ms"]), ms(during.paced["p99_ms"]), ms(during.host["p99_ms"])]
            + [str(gone), well_after]
        )
        for whose, share in during.shares.items():
            self.meet(share >= GOAL, f"{name}: {percent(share)} of {whose} succeed")
        self.meet(not gone, f"{name}: {gone} open connections or flows lost")

    def recover(self):
        """Returns the seconds until a second of requests succeeded."""
        began = time.monotonic()
        while (took := time.monotonic() - began) < RECOVERY_S:
            one = paced(self.lab, PACE, 1)
            if one["answered"] == one["planned"]:
                return "at once" if took < 1 else f"{took:.0f} s"
        return f"over {RECOVERY_S} s"

    def claim_whole(self):
        report = self.traffic.step()
        gone = sum(report["failures"].values()) - self.gone
        self.gone += gone
        self.meet(not gone, f"{gone} open connections or flows lost")

    def account(self):
        self.show.step("All of it")
        say("     rate: offered; lost: at the worker's full queue, of all packets; then the share")
        say("     of requests that succeed: to the services (paced, wrk), to the forwarder's host,")
        say("     to the agent's socket; gone: open connections lost; well after the end")
        self.show.table(HEAD, self.rows)

    def stop(self):
        self.show.stop(self.steelyard)
        self.show.command("steelyard cleanup", self.steelyard.cleanup())

    def look_around(self):
        return {"as the client": f"{self.lab['client'].ns.enter} curl http://{VIP[4]}/"}


if __name__ == "__main__":
    sys.exit(perform(Attack, "attack", __doc__))
