# SPDX-License-Identifier: Apache-2.0
"""The second part of the failover demo: three nodes that all serve, by ECMP and BGP. Nodes die,
drain and join while thousands of conversations go on."""

import time

from tests.demo.show import say
from tests.demo.survival import Survival, ms
from tests.lab.ecmp import EcmpNetwork, local_addresses
from tests.lab.mode_table import ROWS
from tests.lab.steelyard import FORWARDER_NICE
from tests.wire.cluster import RoutedCluster

PICTURE = """
                      ┌──BGP──[ node 1 ]──┐
   client ──── router ┼──BGP──[ node 2 ]──┼──── router ──┬── s1  nginx and a DNS server
                BIRD  └──BGP──[ node 3 ]──┘   the same   ├── s2
                                                         └── s3

   The same flows as above. Each node's agent announces the VIPs, and the router spreads flows over
   the nodes by a hash of addresses and ports. What the servers send is spread likewise.
"""
NODES = 3


class Spread(Survival):
    NETWORK = {"topology": EcmpNetwork, "nodes": NODES}
    OPTIONS = {
        "changes": (7, "times that one of three nodes dies, drains or joins"),
        **Survival.OPTIONS,
    }
    columns = ("node", "routes", "relayed", "complete")
    legend = (
        "Time until the router had changed its routes; packets that nodes relayed to each other;",
        "time until each session was at two nodes again; longest wait of each kind.",
    )

    def __init__(self, lab, changes, connections, seed):
        super().__init__(lab, connections, seed)
        self.changes = changes
        self.cluster = RoutedCluster((1,) * NODES, self.counts, lab, size_mb=3)
        self.steelyard = None  # of the first node, once there is one

    def run(self):
        say(PICTURE)
        self.start()
        self.survive_all()
        self.finish()
        self.show.step("The accounting")
        self.claim_no_resets()

    def plan(self, dice):
        """A node joins; then, repeatedly, one dies or drains and joins again."""
        self.dice = dice
        ends = [self.killed, self.drained]
        plan = [self.joined]
        for end in dice.sample(ends, 2) + dice.choices(ends, k=self.changes):
            plan += [end, self.joined]
        return plan[: self.changes]

    def start(self):
        self.show.step("Three servers, a router with BIRD and two of three nodes start")
        self.cluster.begin()
        self.traffic = self.cluster.traffic
        nodes = self.cluster.nodes
        self.steelyard = nodes[1].steelyard
        self.count_resets([one for number in nodes for one in local_addresses(number)])
        self.cluster.start(1, 2)
        self.prefer(1, 2)
        self.away = [3]
        self.show.claim(True, "the router spreads flows over nodes 1 and 2")
        self.begin_flows()
        self.cluster.wait_replicated(self.flows)
        shown = self.steelyard.cli("get", "neighbors")
        self.show.command("steelyard get neighbors", shown)

    def prefer(self, *numbers):
        for number in numbers:
            self.cluster.nodes[number].steelyard.forwarder.prefer(FORWARDER_NICE)

    def happen(self, event):
        before = self.relayed()
        self.began = time.time()
        number, routes = event()
        self.cluster.wait_joined()
        self.cluster.wait_replicated(self.flows)
        complete = time.time() - self.began
        relayed = sum(now - before.get(node, 0) for node, now in self.relayed().items())
        return [str(number), ms(routes), str(relayed), ms(complete)]

    def relayed(self):
        """Returns how many packets each living node has relayed."""
        return {
            number: sum(peer.relayed_out for peer in node.peers().peers)
            for number, node in self.cluster.living().items()
        }

    # ---- events: each returns the node, and the time until the router's routes had changed -------

    def killed(self):
        """Forwarder killed."""
        number = self.leave()
        self.cluster.nodes[number].steelyard.kill_forwarder()
        self.cluster.withdraw(number)
        return number, time.time() - self.began

    def drained(self):
        """Node drained, stopped."""
        number = self.leave()
        steelyard = self.cluster.nodes[number].steelyard
        steelyard.cli("drain", "node")
        self.cluster.withdraw(number)
        routes = time.time() - self.began
        self.show.claim(steelyard.forwarder.stop() == 0, f"node {number} has drained, and ended")
        return number, routes

    def joined(self):
        """Node joined."""
        number = self.away.pop()
        node = self.cluster.nodes[number]
        if node.steelyard.agent:
            node.steelyard.start_forwarder()
            node.steelyard.cli("undrain", "node")
            self.cluster.wait_joined()
        else:
            node.steelyard.start()
        self.prefer(number)
        self.cluster.announce(number)
        return number, time.time() - self.began

    def leave(self):
        number = self.dice.choice(sorted(self.cluster.living()))
        self.away.append(number)
        return number

    # ---- the end ---------------------------------------------------------------------------------

    def stop(self):
        self.show.step("All of it stops")
        for number, node in self.cluster.nodes.items():
            if node.steelyard.forwarder.alive():
                self.claim_ended(number, node.steelyard)
        self.cluster.hosts.close()

    def look_around(self):
        return {"as the client": f"{self.lab['far'].ns.enter} curl {ROWS[0].url}/"}
