# SPDX-License-Identifier: Apache-2.0
"""The table of modes and protocols on the same servers: their setup, and the test of each cell.

One-armed. The client is `far`, behind the router, because NAT needs clients that servers reach only
through the forwarder. Servers route by source: answers from a VIP to the router, other packets to
the forwarder."""

import hashlib
import os
import re
from dataclasses import dataclass

from tests.lab.clients import dns_txt, wrk
from tests.lab.config import Config, Server, Service
from tests.lab.servers import nginx_log, start_dns, start_nginx
from tests.lab.steelyard import DNS, SERVER_DNS, SERVER_WEB, WEB, local_addresses
from tests.lab.topology import FRONT, v4, v6
from tests.lab.tunnel import TunnelEnd
from tests.lab.wait import wait_until

PROTOCOLS = ("tcp", "udp", "icmp")
VIP_ON_SERVERS = ("dr", "ipip")  # modes whose servers have the VIP on an interface of their own
BY_ROUTER = 100  # the number of a routing table of the servers: by the router
BIG = 1_000_000


@dataclass(frozen=True)
class Row:
    """A mode, its clients' address family, and the family of packets to servers."""

    mode: str
    client: int
    server: int

    def __str__(self):
        if self.mode == "ipip":
            return f"ipip-{self.client}in{self.server}"
        if self.client != self.server:
            return f"{self.mode}-{self.client}to{self.server}"
        return f"{self.mode}-v{self.client}"

    @property
    def vip(self):
        return (v4 if self.client == 4 else v6)(FRONT, 60 + ROWS.index(self))

    @property
    def ports(self):
        """Returns the service's ports for the web and for DNS."""
        return (SERVER_WEB, SERVER_DNS) if self.mode in VIP_ON_SERVERS else (WEB, DNS)

    @property
    def url(self):
        host = f"[{self.vip}]" if self.client == 6 else self.vip
        return f"http://{host}:{self.ports[0]}"


ROWS = (
    Row("fnat", 4, 4),
    Row("fnat", 6, 6),
    Row("fnat", 6, 4),
    Row("fnat", 4, 6),
    Row("nat", 4, 4),
    Row("nat", 6, 6),
    Row("dr", 4, 4),
    Row("dr", 6, 6),
    Row("ipip", 4, 4),
    Row("ipip", 6, 6),
    Row("ipip", 4, 6),
    Row("ipip", 6, 4),
)
# Connections that servers open: servers are the clients, and `far` is the server.
OUTWARD = (Row("snat", 4, 4), Row("snat", 6, 6))
TABLE = ROWS + OUTWARD
POOL = [family(FRONT, n) for family in (v4, v6) for n in (230, 231)]


def config(network):
    """Returns a configuration with services web-ROW and dns-ROW for every row, and an SNAT rule."""
    made = Config(local_addresses(FRONT))
    inside = [f"{h.v4}/32" for h in network.server_hosts()]
    inside += [f"{h.v6}/128" for h in network.server_hosts()]
    made.snat = [{"name": "out", "inside": inside, "pool": POOL}]
    for row in ROWS:
        for kind, protocol, port, own in zip(
            ("web", "dns"), ("tcp", "udp"), row.ports, (SERVER_WEB, SERVER_DNS), strict=True
        ):
            servers = [Server(host.address(row.server), own) for host in network.server_hosts()]
            made.services.append(
                Service(f"{kind}-{row}", row.vip, port, protocol, mode=row.mode, servers=servers)
            )
    return made


class ModeHosts:
    """Sets up servers and routes for every mode. Call close() when done.

    gateway: of the servers, for IPv4 and IPv6. proxied: another port, of PROXY protocol."""

    def __init__(self, lab, gateway=None, proxied=0):
        self.lab, self.ends, self.processes = lab, [], {}
        self.gateway = gateway or (v4(FRONT, 1), v6(FRONT, 1))
        self.proxied = proxied
        self.content = os.urandom(BIG)

    def start(self):
        self.lab.network.let_forwarder_route()
        for host in self.lab.servers():
            self._server(host)
        self._serve(self.lab["far"])

    def _server(self, host):
        host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
        host.ns.sysctl("ipv4.conf.all.arp_announce", 2)
        self.lab.network.default_route(host.name, *self.gateway)
        by4, by6 = self.lab.network.router
        host.ns.ip(f"route add default via {by4} table {BY_ROUTER}")
        host.ns.ip(f"-6 route add default via {by6} table {BY_ROUTER}")
        for row in ROWS:
            if row.mode in VIP_ON_SERVERS:
                length, nodad = (32, "") if row.client == 4 else (128, "nodad")
                host.ns.ip(f"address add {row.vip}/{length} dev lo {nodad}")
                host.ns.ip(f"-{row.client} rule add from {row.vip} lookup {BY_ROUTER}")
        self.ends.append(TunnelEnd(host))
        self._serve(host)

    def _serve(self, host):
        nginx = start_nginx(self.lab, host.name, proxied=self.proxied)
        self.processes[host.name] = nginx, start_dns(self.lab, host.name)
        (self.lab.dir / f"nginx-{host.name}/files/big").write_bytes(self.content)

    def close(self):
        for end in self.ends:
            end.close()

    # ---- the cells -------------------------------------------------------------------------------

    def names(self):
        return {host.name for host in self.lab.servers()}

    def curl(self, url, host="far"):
        """Returns the body of an answer."""
        file = self.lab.dir / f"curl-{host}"
        self.lab[host].ns.run(["curl", "-sS", "--fail", "--max-time", 30, "-o", file, url])
        return file.read_bytes()

    def check(self, row, protocol):
        """Passes if the cell works; returns a short description of the results."""
        return getattr(self, f"_{'snat_' if row in OUTWARD else ''}{protocol}")(row)

    def _tcp(self, row):
        """curl, a large file compared by its hash, short connections by wrk, and the client address
        that the servers saw."""
        path = f"/{os.urandom(8).hex()}"
        assert self.curl(row.url + path).decode().strip() in self.names()
        body = self.curl(row.url + "/files/big")
        assert hashlib.sha256(body).digest() == hashlib.sha256(self.content).digest()
        load = wrk(self.lab, row.url + "/", 300, connections=8, keep_alive=False, host="far")
        assert not load.failed, load
        assert set(load.served) == self.names(), load
        seen = self._seen(path)
        expected = (
            local_addresses(FRONT) if row.mode == "fnat" else [self.lab["far"].address(row.client)]
        )
        assert seen in expected, f"the server saw {seen}, not one of {expected}"
        return f"{load.requests} requests, servers see {seen}"

    def _seen(self, path):
        """Returns the client address that a server logged for this path's request."""

        def peers():
            return [
                peer
                for name in self.processes
                for peer, _, _, asked in nginx_log(self.lab, name)
                if asked == path
            ]

        (peer,) = wait_until(peers, "a server logs the request")
        return peer

    def _udp(self, row):
        """Queries to the name servers, with short answers and with one of 600 bytes."""
        client, port = self.lab["far"], row.ports[1]
        served = [dns_txt(client, row.vip, port) for _ in range(30)]
        assert set(served) == self.names(), served
        assert dns_txt(client, row.vip, port, "long.lab")[:2] in self.names()
        return f"{len(served)} answers"

    def _icmp(self, row):
        """The VIP itself answers pings."""
        output = self.lab["far"].ns.run(["ping", "-n", "-c3", "-i0.2", "-W60", row.vip])
        assert re.search(r"\b3 received", output), output
        return "3 echoes"

    def _snat_tcp(self, row):
        """Each server sends requests to `far` and downloads a large file from it; checks the client
        addresses that `far` sees."""
        far = self.lab["far"].address(row.client)
        url = f"http://{f'[{far}]' if row.client == 6 else far}:{SERVER_WEB}"
        for name in self.names():
            path = f"/{os.urandom(8).hex()}"
            assert self.curl(url + path, name).decode().strip() == "far"
            seen = self._seen(path)
            assert seen in POOL, f"the far server saw {seen}, not one of {POOL}"
        body = self.curl(url + "/files/big", name)
        assert hashlib.sha256(body).digest() == hashlib.sha256(self.content).digest()
        load = wrk(self.lab, url + "/", 300, connections=8, keep_alive=False, host=name)
        assert not load.failed, load
        return f"{load.requests} requests, the far server sees {seen}"

    def _snat_udp(self, row):
        far = self.lab["far"].address(row.client)
        served = [
            dns_txt(self.lab[name], far, SERVER_DNS) for name in self.names() for _ in range(10)
        ]
        assert set(served) == {"far"}
        return f"{len(served)} answers"

    def _snat_icmp(self, row):
        for name in self.names():
            output = self.lab[name].ns.run(
                ["ping", "-n", "-c3", "-i0.2", "-W60", self.lab["far"].address(row.client)]
            )
            assert re.search(r"\b3 received", output), output
        return "3 echoes from each server"
