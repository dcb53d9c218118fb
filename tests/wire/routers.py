# SPDX-License-Identifier: Apache-2.0
"""Debian's BIRD and FRR on nodes, with the shipped filters, and as routers that spread flows over
the nodes."""

import ipaddress
import json
import re
import shutil

from tests.lab.lab import ROOT
from tests.lab.topology import FRONT, v4, v6
from tests.lab.wait import wait_until

ROUTER = 2  # its number on the front network
# A default route of servers' packets, in a table of its own: to each node by an address that the
# node announces with the best metric, so to the nodes that live.
BIRD_OUTWARD = """
ipv{family} table outward{family};
protocol kernel {{
    kernel table {table};
    merge paths on;
    ipv{family} {{ table outward{family}; import none; export all; }};
}}
"""
BIRD_OUTWARD_HOP = """
protocol static {{
    ipv{family} {{ table outward{family}; }};
    igp table master{family};
    route {anywhere} recursive {address};
}}
"""

BIRD_ROUTER = """
log stderr all;
router id {id};
protocol device {{ }}
protocol bfd {{ interface "*" {{ interval 1 s; multiplier 5; }}; }}
protocol kernel {{ merge paths on; ipv4 {{ import none; export all; }}; }}
protocol kernel {{ merge paths on; ipv6 {{ import none; export all; }}; }}
template bgp node {{
    local as 65000;
    hold time 9;
    {bfd}
    connect retry time 1;
    connect delay time 1;
    error wait time 1, 2;
    {password}
}}
{neighbours}
"""
BIRD_NEIGHBOUR = """
protocol bgp n{number}_{family} from node {{
    neighbor {address} as 65001;
    ipv{family} {{ import all; export none; }};
}}
"""
FRR_ROUTER = """
route-map nothing deny 10
exit
route-map in permit 10
 set ipv6 next-hop prefer-global
exit
router bgp 65000
 bgp router-id {id}
 no bgp ebgp-requires-policy
 no bgp default ipv4-unicast
 timers bgp 3 9
{neighbours}
exit
"""
FRR_NEIGHBOUR = """ neighbor {address} remote-as 65001
 neighbor {address} timers connect 1
{password}
 address-family ipv{family} unicast
  neighbor {address} activate
  neighbor {address} route-map in in
  neighbor {address} route-map nothing out
  maximum-paths 8
 exit-address-family
"""


def replace_all(text, changes):
    for shipped, here in changes.items():
        assert shipped in text, shipped
        text = text.replace(shipped, str(here))
    return text


class Daemon:
    """BIRD or FRR on a host, with a configuration."""

    def __init__(self, lab, host, kind):
        self.lab, self.host, self.kind = lab, host, kind
        self.dir = lab.dir / f"{kind}-{host}"
        self.dir.mkdir(exist_ok=True)

    def start(self, text):
        file = self.dir / "conf"
        file.write_text(text)
        if self.kind == "bird":
            argv = ["bird", "-f", "-c", file, "-s", self.dir / "ctl", "-P", self.dir / "pid"]
            self.lab.start(self.host, f"bird-{self.host}", argv)
            return self
        shutil.chown(self.dir, "frr", "frr")  # FRR runs as no other user
        for name in ("zebra", "bgpd"):
            argv = [f"/usr/lib/frr/{name}", "-f", file]
            argv += ["-i", self.dir / f"{name}.pid", "--vty_socket", self.dir]
            argv += ["-z", self.dir / "zserv", "--log", "stdout"]
            self.lab.start(self.host, f"{name}-{self.host}", argv)
            # bgpd may otherwise never learn the link-local addresses that IPv6 sessions need.
            wait_until((self.dir / "zserv").exists, "zebra listens")
        return self


def start_node_daemon(lab, host, kind, number):
    """Starts a node's routing daemon, with the shipped configuration."""
    text = (ROOT / f"deploy/{kind}/steelyard.conf").read_text()
    changes = {"10.0.0.254": v4(FRONT, ROUTER), "10.0.0.1": v4(FRONT, number)}
    if kind == "bird":
        changes |= {"log syslog all": "log stderr all", "fd00::254": v6(FRONT, ROUTER)}
    return Daemon(lab, host, kind).start(replace_all(text, changes))


def outward(table, addresses):
    """Returns BIRD's configuration of a default route by these addresses, one of each node."""
    text = ""
    for family, anywhere in ((4, "0.0.0.0/0"), (6, "::/0")):
        text += BIRD_OUTWARD.format(family=family, table=table)
        for address in addresses:
            if ipaddress.ip_address(address).version == family:
                text += BIRD_OUTWARD_HOP.format(family=family, anywhere=anywhere, address=address)
    return text


def agent_bgp(router_id, families=(4, 6), router=(FRONT, ROUTER), **settings):
    """Returns `routes.bgp` of a node's agent, in the file's form. router: its network, and its
    number there. settings: of each neighbor."""
    addresses = [{4: v4, 6: v6}[family](*router) for family in families]
    return {
        "as": 65001,
        "router_id": router_id,
        "communities": ["65001:100"],
        "restart_time": "120s",
        "neighbors": [{"address": one, "as": 65000} | settings for one in addresses],
    }


class Router(Daemon):
    """The host `router`, with a session to each node and family. net: the network of the nodes.
    more: its configuration beyond that."""

    def __init__(self, lab, kind, numbers, password="", net=FRONT, more=""):
        super().__init__(lab, "router", kind)
        self.ns = lab["router"].ns
        # By ports too: clients are few.
        self.ns.sysctl("ipv4.fib_multipath_hash_policy", 1)
        self.ns.sysctl("ipv6.fib_multipath_hash_policy", 1)
        neighbours = ""
        for number in numbers:
            for family, address in ((4, v4(net, number)), (6, v6(net, number))):
                word = BIRD_NEIGHBOUR if kind == "bird" else FRR_NEIGHBOUR
                said = f" neighbor {address} password {password}" if password else " !"
                neighbours += word.format(
                    number=number, family=family, address=address, password=said
                )
        text = BIRD_ROUTER if kind == "bird" else FRR_ROUTER
        said = f'password "{password}";' if password else ""
        bfd = "bfd on;" if password else ""
        text = text.format(id=self.lab["router"].v4, neighbours=neighbours, password=said, bfd=bfd)
        self.start(text + more)

    def next_hops(self, address):
        """Returns the next hops of the kernel's route to an address, as the numbers of nodes."""
        family = ipaddress.ip_address(address).version
        argv = ["ip", f"-{family}", "-j", "route", "show", "exact", address]
        shown = json.loads(self.ns.run(argv))
        hops = set()
        for route in shown:
            for one in [*route.get("nexthops", ()), route]:
                via = one.get("gateway") or one.get("via", {}).get("host")
                if via:
                    hops.add(int(re.split(r"[.:]", via)[-1], 16))
        return hops
