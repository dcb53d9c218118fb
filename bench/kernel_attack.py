# SPDX-License-Identifier: Apache-2.0
"""The kernel as a baseline under attack: its own SYN cookies, and nftables' sets.

    source  a0 ── a1 [victim] b1 ── b0, which is down

Packets of steelyard-attack enter the victim's stack as if a1 had received them, each batch after
the one before it was dealt with (--stack). So one core makes the packets (some fifty nanoseconds
each) and the stack deals with them. Its answers leave by b1 and end there.
"""

import ipaddress
import json
import random
import socket
import subprocess

from bench import machine
from bench.bed import Bed
from tests.lab.flood import ANYBODY, ATTACK

PORT, SECONDS = 80, 1
ADDRESS = {4: "10.9.0.1", 6: "fd09::1"}
AWAY = {4: "10.9.1.2", 6: "fd09:1::2"}


class Victim(Bed):
    """A namespace that is flooded."""

    def __init__(self, core):
        super().__init__("victim")
        self.core = core

    def build(self):
        source, ns = self.namespaces("source", "victim")
        self.ns = ns
        source.ip(f"link add a0 type veth peer name a1 netns {ns.name}")
        source.ip(f"link add b0 type veth peer name b1 netns {ns.name}")
        source.ip("link set a0 up")
        for name in ("a1", "b1"):
            ns.ip(f"link set {name} up")
        for family, length in ((4, 24), (6, 64)):
            ns.ip(f"-{family} address add {ADDRESS[family]}/{length} dev a1")
            ns.ip(
                f"-{family} neigh add {AWAY[family]} lladdr 02:00:00:00:00:ff dev b1 nud permanent"
            )
            ns.ip(f"-{family} route add {ANYBODY[family]} via {AWAY[family]} dev b1 onlink")
        ns.sysctl("ipv4.conf.all.rp_filter", 0)
        ns.sysctl("ipv4.conf.a1.rp_filter", 0)

    def flood(self, kind, family):
        """(packets that the stack was given, seconds of CPU time)"""
        command = [ATTACK, "--stack", "--interface", "a1", "--mac", self.ns.mac("a1")]
        command += ["--kind", kind, "--to", ADDRESS[family], "--port", PORT]
        command += ["--from", ANYBODY[family], "--seconds", SECONDS]
        command = ["taskset", "-c", self.core, *self.ns.command(command)]
        done = subprocess.run(
            machine.first(command), capture_output=True, text=True, check=False, timeout=120
        )
        if done.returncode:
            raise machine.Failed(done.stderr)
        sent = json.loads(done.stdout)
        return sent["sent"], sent["cpu"]

    def cookies_sent(self):
        names, values = (
            line.split()
            for line in self.ns.run(["cat", "/proc/net/netstat"]).splitlines()
            if line.startswith("TcpExt:")
        )
        return int(values[names.index("SyncookiesSent")])

    def cookies(self, family):
        """SYNs that Linux answers by cookies, a second and core."""
        self.ns.sysctl("ipv4.tcp_syncookies", 2)
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        with self.ns.socket(kind) as one:
            one.bind((ADDRESS[family], PORT))
            one.listen(4096)
            before = self.cookies_sent()
            _, seconds = self.flood("syn", family)
            return (self.cookies_sent() - before) / seconds

    def rules(self, family, elements):
        """Loads one chain that drops everything, after asking a set of these if there are any."""
        word = "ip" if family == 4 else "ip6"
        blocked, ask = "", ""
        if elements:
            kind = "ipv4_addr" if family == 4 else "ipv6_addr"
            members = f"elements = {{ {', '.join(elements)} }}"
            blocked = f"set blocked {{\ntype {kind}\nflags interval\n{members}\n}}"
            ask = f"{word} saddr @blocked drop"
        chain = f"chain in {{\ntype filter hook prerouting priority raw;\n{ask}\ndrop\n}}"
        self.ns.run(["nft", "-f", "-"], stdin=f"table inet bench {{\n{blocked}\n{chain}\n}}\n")

    def set_cost(self, family, entries, runs):
        """Nanoseconds that asking a set of random addresses adds to a packet; a value a run."""
        spent = {}
        for used in (0, entries):
            self.rules(family, hosts(family, used))
            spent[used] = []
            for _ in range(runs):
                sent, seconds = self.flood("syn", family)
                spent[used].append(1e9 * seconds / sent)
            self.ns.run(["nft", "delete", "table", "inet", "bench"])
        return [with_it - without for without, with_it in zip(*spent.values(), strict=True)]


def hosts(family, count):
    """So many random addresses from where floods seem to come."""
    network, draw = ipaddress.ip_network(ANYBODY[family]), random.Random(1)
    first, size = int(network.network_address), network.num_addresses
    kind = ipaddress.IPv4Address if family == 4 else ipaddress.IPv6Address
    return [str(kind(first + draw.randrange(size))) for _ in range(count)]
