# SPDX-License-Identifier: Apache-2.0
"""Flows in every mode that must outlive whatever happens to their nodes: what happens is chosen at
random, and each event is a row of a table."""

import random

from tests.demo.show import Show, say
from tests.lab.mode_traffic import KINDS, failures_of


def ms(seconds):
    return f"{1000 * seconds:.0f} ms"


class Survival:
    """A subclass starts nodes in start(), which calls begin_flows(), and chooses events in
    plan(dice): methods whose docstrings name them. happen(event) returns words for `columns`, once
    the nodes are complete again."""

    OPTIONS = {
        "connections": (2000, "HTTP connections of FNAT; all other numbers follow"),
        "seed": (0, "repeats the events of an earlier run"),
    }
    columns = legend = ()  # of the table, between the event and the waits

    def __init__(self, lab, connections, seed):
        self.lab, self.show = lab, Show()
        self.seed = seed or random.randrange(1, 1 << 31)
        self.counts = connections, max(connections // 10, 2), max(connections // 2, 4)
        self.traffic, self.reports, self.rows = [], [], []

    @property
    def flows(self):
        return sum(sum(traffic.counts.values()) for traffic in self.traffic)

    def survive_all(self):
        dice = random.Random(self.seed)
        plan = self.plan(dice)
        self.show.step(f"{len(plan)} events at random, the same with --seed {self.seed}")
        try:
            for event in plan:
                self.survive(event)
        finally:
            self.table()

    def survive(self, event):
        """Lets an event happen, waits for its end, and adds a row to the table."""
        words = self.happen(event)
        for traffic in self.traffic:
            traffic.begin_step()
        self.reports = [traffic.end_step() for traffic in self.traffic]
        stalls = [
            max(report["flows"][kind]["stall_ms"] for report in self.reports) for kind in KINDS
        ]
        number = f"{len(self.rows) + 1} {event.__doc__.rstrip('.')}"
        waits = [f"{stall:.0f} ms" for stall in stalls]
        self.rows.append([number, *words, *waits, *map(str, failures_of(self.reports))])
        shown = zip(self.columns, words, strict=True)
        say(f"     {number}: " + "; ".join(f"{name} {word or '-'}" for name, word in shown))
        self.claim_whole(quiet=True)

    def table(self):
        say()
        for line in self.legend:
            say(f"     {line}")
        head = ["", *self.columns, *KINDS.values(), "lost", "corrupted"]
        self.show.table(head, self.rows)

    # ---- flows -----------------------------------------------------------------------------------

    def begin_flows(self):
        self.show.step(f"{self.flows} flows begin")
        self.reports = [traffic.start("-rate", 8 << 10) for traffic in self.traffic]
        self.claim_whole()

    def claim_whole(self, quiet=False):
        """Every flow is at its first server, and has an answer to its last request."""
        lost, corrupted = failures_of(self.reports)
        text = f"all {self.flows} flows go on: none reset, none corrupted, each at its server"
        if lost or corrupted:
            examples = [line for report in self.reports for line in report["examples"]]
            text = "\n     ".join([f"{lost} lost, {corrupted} corrupted:", *examples])
        if lost or corrupted or not quiet:
            self.show.claim(not lost and not corrupted, text)

    def finish(self):
        self.show.step("The downloads go on at full speed, to their ends")
        self.reports = [traffic.finish() for traffic in self.traffic]
        self.claim_whole()

    def hosts_with_flows(self):
        return self.lab["far"], *self.lab.servers()

    def count_resets(self, forwarders):
        """Counts from now on. forwarders: their addresses, as servers see them."""
        self.lab["far"].ns.count_resets()
        for host in self.lab.servers():
            host.ns.count_resets(forwarders)

    def claim_no_resets(self):
        for host in self.hosts_with_flows():
            resets = host.ns.resets()
            self.show.claim(not resets, f"{host} got {resets} TCP resets")

    def claim_ended(self, name, steelyard):
        self.show.claim(steelyard.agent.stop() == 0, f"agent {name} ended cleanly")
        self.show.claim(steelyard.forwarder.stop() == 0, f"forwarder {name} ended cleanly")
