# SPDX-License-Identifier: Apache-2.0
"""A network with several forwarders behind a router that spreads flows over them (ECMP):

    far 10.9.0.10 ── router 10.1.0.250 ─── bridge ─┬─ n1 10.1.0.1   local addresses 10.21.0.X
                                                   ├─ n2 10.1.0.2                   10.22.0.X
                                                   ├─ n3 10.1.0.3                   10.23.0.X
                                                   └─ s1 10.1.0.11, s2 10.1.0.12, …

VIPs (10.0.0.X) and local addresses are on no network. The router has routes to them, as it would
have by BGP: the VIPs by all nodes that are announced, a node's local addresses by this node, or, at
a worse metric, by all. Servers reach all of it by the router; what they send for NAT, to clients,
goes by all nodes too. IPv6 likewise, as in topology.py."""

import random
from dataclasses import dataclass, field

from tests.lab.topology import BACK, FRONT, Network, v4, v6

ROUTER = 250
FAMILIES = (4, 6)
OWN, ANY = 10, 100  # metrics of routes to local addresses: by their node; by all
OUTWARD = 100  # the router's table of packets from servers


def local_net(node):
    return 20 + node


def local_addresses(node, count=2):
    return [one(local_net(node), 200 + i) for one in (v4, v6) for i in range(count)]


def pool_addresses(node, count=2):
    """Returns those of SNAT, on the same network."""
    return [one(local_net(node), 230 + i) for one in (v4, v6) for i in range(count)]


def prefix(family, net):
    return f"{v4(net, 0)}/24" if family == 4 else f"{v6(net, '')}/64"


def ip_of(family):
    return "" if family == 4 else "-6 "


def next_hop(family, node):
    """Returns the number of the kernel's next hop object of a node; node 0: of the group."""
    return 100 * family + node


@dataclass
class EcmpNetwork(Network):
    """With `nodes` forwarders, n1, n2, …; none is announced at first."""

    arms: int = 1
    nodes: int = 3
    announced: list = field(default_factory=list)  # nodes, in the order in which flows are spread

    @property
    def back_net(self):
        return BACK

    @property
    def router(self):
        return v4(BACK, ROUTER), v6(BACK, ROUTER)

    def let_forwarder_route(self):
        """Does nothing: what servers send goes by the router to the nodes."""

    def others(self):
        return (*map(self.node_name, self.numbers()), "router", "far")

    def numbers(self):
        return range(1, self.nodes + 1)

    @staticmethod
    def node_name(number):
        return f"n{number}"

    def _wire(self, servers):
        self._bridges("front", "far")
        for number in self.numbers():
            self.plug(self[self.node_name(number)], "front", "front", BACK, number, self.queues)
        self._far(BACK, ROUTER)
        for n, name in enumerate(servers, 1):
            self.plug(self[name], "eth0", "front", BACK, 10 + n)
        for number in self.numbers():
            self.default_route(self.node_name(number), *self.router)
        self._router_routes(servers)

    def _router_routes(self, servers):
        router = self["router"].ns
        for scope in ("all", "default"):
            router.sysctl(f"ipv4.conf.{scope}.send_redirects", 0)
        for version in ("ipv4", "ipv6"):  # by addresses and ports
            router.sysctl(f"{version}.fib_multipath_hash_policy", 1)
        for family, address in ((4, v4), (6, v6)):
            ip = ip_of(family)
            for number in self.numbers():
                via = f"via {address(BACK, number)} dev eth0"
                router.ip(f"{ip}nexthop add id {next_hop(family, number)} {via}")
            for net in (BACK, *map(local_net, self.numbers())):
                router.ip(f"{ip}route add throw {prefix(family, net)} table {OUTWARD}")
            for name in servers:
                source = self[name].address(family)
                router.ip(f"{ip}rule add from {source} lookup {OUTWARD}")

    # ---- what routing protocols would do ---------------------------------------------------------

    def announce(self, *numbers):
        """Adds nodes to those among which the router spreads flows."""
        first = not self.announced
        self._spread([*self.announced, *numbers])
        router = self["router"].ns
        for family in FAMILIES:
            ip = ip_of(family)
            group = f"nhid {next_hop(family, 0)}"
            if first:
                router.ip(f"{ip}route add {prefix(family, FRONT)} {group}")
                router.ip(f"{ip}route add default {group} table {OUTWARD}")
                for number in self.numbers():
                    local = prefix(family, local_net(number))
                    router.ip(f"{ip}route add {local} {group} metric {ANY}")
            for number in numbers:
                local = prefix(family, local_net(number))
                hop = next_hop(family, number)
                router.ip(f"{ip}route add {local} nhid {hop} metric {OWN}")

    def withdraw(self, number):
        """Removes a node, which must not be the last one."""
        router = self["router"].ns
        for family in FAMILIES:
            local = prefix(family, local_net(number))
            router.ip(f"{ip_of(family)}route del {local} metric {OWN}")
        self._spread([one for one in self.announced if one != number])

    def spread_anew(self, dice=random):
        """Changes the nodes of most flows, as a router does when one comes or goes."""
        before = self.announced
        while self.announced == before and len(before) > 1:
            self.announced = dice.sample(before, len(before))
        self._spread(self.announced)

    def _spread(self, numbers):
        """Replaces the group. Each member has a part of the hash's range, in their order."""
        self.announced = list(numbers)
        for family in FAMILIES:
            members = "/".join(str(next_hop(family, number)) for number in numbers)
            group = f"id {next_hop(family, 0)} group {members}"
            self["router"].ns.ip(f"nexthop replace {group}")
