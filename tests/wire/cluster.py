# SPDX-License-Identifier: Apache-2.0
"""Nodes that all serve, behind a router that spreads flows over them."""

import copy

from tests.lab import Lab, wait_until
from tests.lab.api import forwarder as pb
from tests.lab.ecmp import OUTWARD, ROUTER, EcmpNetwork, local_addresses, pool_addresses
from tests.lab.mode_table import ROWS, ModeHosts, config
from tests.lab.mode_traffic import PROXIED, failures_of, plan_traffic, provide_content
from tests.lab.steelyard import Steelyard
from tests.lab.topology import BACK, v4
from tests.wire import routers
from tests.wire.drop_log import DropLog
from tests.wire.pair import Node, make_node

ECMP = ("--sync-mode", "ecmp")


class Cluster:
    """Lab, servers and nodes with a service of every mode. A context manager, or begin() in a lab
    that exists.

    workers: of each node. counts: HTTP connections, downloads and UDP flows of FNAT. size_mb: of
    each download."""

    def __init__(self, workers=(1, 1, 1), counts=(24, 4, 12), lab=None, size_mb=1):
        self.workers, self.counts, self.size_mb = workers, counts, size_mb
        self.lab = lab or Lab(topology=EcmpNetwork, nodes=len(workers))
        self.nodes, self.traffic, self.logs = {}, [], {}

    def __enter__(self):
        self.lab.__enter__()
        try:
            self.begin()
        except BaseException:
            self.lab.close()
            raise
        return self

    def begin(self):
        router = self.lab.network.router
        self.hosts = ModeHosts(self.lab, router, PROXIED)
        self.hosts.start()
        for number, workers in enumerate(self.workers, 1):
            made = self._config(number)
            host = self.lab.network.node_name(number)
            node = Node(number, Steelyard(self.lab, made, host=host, workers=workers))
            self.nodes[number] = node
            peers = {other: v4(BACK, other) for other in self._others(number)}
            make_node(node, v4(BACK, number), peers)
            node.steelyard.options.peers += ECMP
        provide_content(self.lab, self.traffic)

    def _others(self, number):
        return [one for one in range(1, len(self.workers) + 1) if one != number]

    def _config(self, number):
        made = config(self.lab.network)
        made.snat[0]["pool"] = pool_addresses(number)
        for service in made.services:
            if service.mode == "nat":  # the server's first answer may reach any node
                service.spread["sync"] = "all"
        made.local_addresses = local_addresses(number)
        made.peer_local_addresses = [
            one
            for other in self._others(number)
            for one in (*local_addresses(other), *pool_addresses(other))
        ]
        self.traffic = plan_traffic(self.lab, made, self.counts, size_mb=self.size_mb)
        return made

    def start(self, *numbers):
        """Starts nodes, and announces them to the router once they have found each other."""
        for number in numbers:
            steelyard = self.nodes[number].steelyard
            steelyard.start()
            self.logs[number] = DropLog(steelyard.forwarder_socket)
        self.wait_joined()
        self.announce(*numbers)

    def announce(self, *numbers):
        """Makes the router spread flows over these nodes too."""
        self.lab.network.announce(*numbers)

    def withdraw(self, number):
        """Removes a node from those over which the router spreads flows."""
        self.lab.network.withdraw(number)

    def living(self):
        """Returns the nodes whose forwarders run."""
        return {
            number: node
            for number, node in self.nodes.items()
            if node.steelyard.forwarder and node.steelyard.forwarder.alive()
        }

    def wait_joined(self):
        """Waits until each living node knows which of its peers live."""
        living = self.living()

        def joined():
            return all(
                (peer.state == pb.PEER_STATE_ALIVE) == (peer.node in living)
                for node in living.values()
                for peer in node.peers().peers
            )

        wait_until(joined, "the nodes have found each other")

    def wait_replicated(self, least):
        """Waits until every session is at two living nodes, and there are this many. A node that
        was dead, and the one that took its session over, both serve it at first: one cedes it."""

        def replicated():
            living = self.living()
            peers = [
                peer
                for node in living.values()
                for peer in node.peers().peers
                if peer.node in living
            ]
            return (
                all(peer.state == pb.PEER_STATE_ALIVE for peer in peers)
                and all(peer.present == peer.offered for peer in peers)
                and not any(peer.waiting or peer.lag_ms or peer.copying for peer in peers)
                and sum(peer.offered for peer in peers) >= least
            )

        wait_until(replicated, f"{least} sessions are at two nodes each")

    # ---- what happens to nodes -------------------------------------------------------------------

    def die(self, number):
        """Kills a node's forwarder; the router notices."""
        self.nodes[number].steelyard.kill_forwarder()
        self.withdraw(number)

    def come_back(self, number):
        """Starts a node's forwarder again, and announces the node once it has found its peers."""
        steelyard = self.nodes[number].steelyard
        steelyard.start_forwarder()
        steelyard.wait_reconnected()
        self.wait_joined()
        self.announce(number)

    def relayed(self):
        """Returns how many packets nodes have relayed to peers, and received from them."""
        peers = [peer for node in self.living().values() for peer in node.peers().peers]
        return sum(peer.relayed_out for peer in peers), sum(peer.relayed_in for peer in peers)

    def check_drops(self, allowed):
        """Fails if a living node has dropped a packet for another reason."""
        for number, node in self.living().items():
            found = {one: n for one, n in node.steelyard.drops().items() if one not in allowed}
            assert not found, (
                f"node {number} has dropped {found}: {self.logs[number].describe(found)}"
            )

    def __exit__(self, *error):
        for log in self.logs.values():
            log.close()
        self.hosts.close()
        self.lab.__exit__(*error)


class RoutedCluster(Cluster):
    """The nodes' agents announce what they serve by BGP, and the router runs BIRD."""

    def begin(self):
        super().begin()
        outward = routers.outward(
            OUTWARD, [one for number in self.nodes for one in local_addresses(number, 1)]
        )
        self.router = routers.Router(self.lab, "bird", self.nodes, net=BACK, more=outward)

    def _config(self, number):
        made = super()._config(number)
        bgp = routers.agent_bgp(v4(BACK, number), router=(BACK, ROUTER))
        del bgp["restart_time"]  # a dead agent's routes are to be withdrawn
        made.routes = {"bgp": bgp}
        return made

    def serving(self):
        """Returns the nodes over which the router spreads the flows of all services."""
        return set.intersection(*(self.router.next_hops(row.vip) for row in ROWS[:2]))

    def announce(self, *numbers):
        wait_until(lambda: self.serving() >= set(numbers), f"the router knows nodes {numbers}")

    def withdraw(self, number):
        wait_until(
            lambda: not any(number in self.router.next_hops(row.vip) for row in ROWS),
            f"the router sends nothing to node {number}",
        )


class Conversations:
    """Conversations in every mode, of which none may end; a context manager. modes: those of the
    cluster's traffic: FNAT's, those of the other modes, SNAT's."""

    def __init__(self, cluster, modes=3):
        self.cluster = cluster
        self.traffic = [copy.copy(one) for one in cluster.traffic[:modes]]
        self.reports = []

    def __len__(self):
        return sum(sum(one.counts.values()) for one in self.traffic)

    def __enter__(self):
        self.reports = [one.start("-rate", 8 << 10) for one in self.traffic]
        self.check()  # UDP: the clients' second datagrams
        return self

    def check(self):
        """Waits until each flow has had an answer to another request, from its server."""
        for one in self.traffic:
            one.begin_step()
        self.reports = [one.end_step() for one in self.traffic]
        self.claim_whole()

    def claim_whole(self):
        lost, corrupted = failures_of(self.reports)
        examples = [line for report in self.reports for line in report["examples"]]
        assert not lost and not corrupted, f"{lost} lost, {corrupted} corrupted: {examples}"

    def finish(self):
        """Ends the flows; the downloads first get the rest."""
        self.reports = [one.finish() for one in self.traffic]
        self.claim_whole()

    def __exit__(self, kind, *_):
        if not kind:
            self.finish()
        for one in self.traffic:
            one.process.kill()
