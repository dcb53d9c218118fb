# SPDX-License-Identifier: Apache-2.0
"""Policy routing (`ip rule`, routes by type of service) in every mode and family: only sessions
with a packet that the kernel would route otherwise are refused.

The packets that a mode sends decide which rules apply to it: docs/troubleshooting.md."""

import contextlib
import errno
import socket

import pytest

from tests.lab import wait_until
from tests.lab.mode_table import OUTWARD, ROWS, VIP_ON_SERVERS
from tests.lab.steelyard import SERVER_WEB, local_addresses
from tests.lab.topology import FRONT, v4

pytestmark = pytest.mark.drops("no-route", "no-session", "no-neighbour", "neighbour-queue")
TOS = 0x10
LENGTH = {4: 32, 6: 128}


def warnings(stage):
    found = stage.steelyard.api.call("GetStatus").forwarder.status.warnings
    return [text for text in found if "policy routing" in text]


@contextlib.contextmanager
def added(stage, *whats):
    """Adds rules or routes to the forwarder's host, by family, for the block."""
    ns = stage.lab["forwarder"].ns
    begun = []
    try:
        for family, what in whats:
            ns.ip(f"-{family} {what.replace(' ', ' add ', 1)}")
            begun.append((family, what))
        wait_until(lambda: len(warnings(stage)) >= 1, "they are reported")
        yield
    finally:
        for family, what in begun:
            ns.ip(f"-{family} {what.replace(' ', ' del ', 1)}")
        wait_until(lambda: not warnings(stage), "they are gone")


def rules(*words):
    """Returns one rule for each word and address, each with its own priority."""
    return [
        (family, f"rule {word} {address}/{LENGTH[family]} table 100 pref {60 + n}")
        for n, (family, word, address) in enumerate(words)
    ]


def no_route(stage):
    return stage.steelyard.drops().get("no-route", 0)


def is_refused(stage, row, tos=0, host="far", to=None):
    """Returns true if a SYN is dropped as no-route, false if the connection opens."""
    address, port = to or (row.vip, row.ports[0])
    kind = socket.AF_INET if row.client == 4 else socket.AF_INET6
    before = no_route(stage)
    with stage.lab[host].ns.socket(kind, socket.SOCK_STREAM) as client:
        client.setblocking(False)
        if row.client == 4:
            client.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos)
        else:
            client.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, tos)
        begun = client.connect_ex((address, port))
        assert begun in (0, errno.EINPROGRESS), errno.errorcode[begun]

        def connected():
            with contextlib.suppress(OSError):
                return bool(client.getpeername())

        wait_until(lambda: connected() or no_route(stage) > before, f"{row}: there or dropped")
        return not connected()


def check(stage, concerns, tos=0):
    """Checks which rows are refused."""
    refused = {str(row) for row in ROWS if is_refused(stage, row, tos)}
    assert refused == {str(row) for row in ROWS if concerns(row)}


def served(stage):
    check(stage, lambda row: False)


def test_rules_to_servers_refuse_every_mode(modes):
    hosts = modes.lab.servers()
    words = [(family, "to", h.address(family)) for h in hosts for family in (4, 6)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: True)
    served(modes)


@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
def test_rules_to_one_family_of_servers_refuse_that_family(modes, family):
    """Packets to servers have the server's family, whatever the client's."""
    words = [(family, "to", h.address(family)) for h in modes.lab.servers()]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.server == family)
    served(modes)


def test_rules_to_clients_spare_one_way_modes(modes):
    """One-way servers answer past the forwarder."""
    far = modes.lab["far"]
    with added(modes, *rules((4, "to", far.v4), (6, "to", far.v6))):
        check(modes, lambda row: row.mode not in VIP_ON_SERVERS)
        for row in OUTWARD:
            to = (far.address(row.client), SERVER_WEB)
            assert is_refused(modes, row, host="s1", to=to), row
    served(modes)


def test_rules_from_clients_refuse_nat_and_dr(modes):
    """Servers receive the client's address under NAT and DR."""
    far = modes.lab["far"]
    with added(modes, *rules((4, "from", far.v4), (6, "from", far.v6))):
        check(modes, lambda row: row.mode in ("nat", "dr"))
    served(modes)


def test_rules_from_vips_spare_one_way_modes(modes):
    """Answers carry it where they pass the forwarder."""
    words = [(row.client, "from", row.vip) for row in ROWS]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode not in VIP_ON_SERVERS)
    served(modes)


def test_rules_from_local_addresses_refuse_fnat_and_tunnels(modes):
    """They are the source of FNAT's packets and of tunnels."""
    words = [(6 if ":" in a else 4, "from", a) for a in local_addresses(FRONT)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode in ("fnat", "ipip"))
    served(modes)


def test_rules_for_tcp_spare_tunnels(modes):
    """A tunnel's packets are not TCP."""
    hosts = modes.lab.servers()
    words = [(family, "ipproto tcp to", h.address(family)) for h in hosts for family in (4, 6)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode != "ipip")
    served(modes)


def test_routes_by_type_of_service_refuse_their_sessions(modes):
    """To servers by IPv4: sessions that start with that type of service, and no others."""
    routes = [(4, f"route {h.v4}/32 tos {TOS:#x} via {v4(FRONT, 2)}") for h in modes.lab.servers()]
    with added(modes, *routes):
        served(modes)
        check(modes, lambda row: row.server == 4, TOS)
    check(modes, lambda row: False, TOS)
