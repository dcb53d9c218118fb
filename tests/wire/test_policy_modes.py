# SPDX-License-Identifier: Apache-2.0
"""Policy routing (`ip rule`, routes by type of service) in every mode and family: sessions with a
packet that the kernel would route otherwise do not begin, and all others do.

Which packets a mode sends says which rules concern it: docs/troubleshooting.md.
"""

import contextlib
import errno
import socket

import pytest

from tests.lab import wait_until
from tests.lab.modes import OUTWARD, OWN_VIP, ROWS
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
    """Rules or routes of the forwarder's host, by family, while they are in force."""
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
    """One for each word and address, with a priority of its own."""
    return [
        (family, f"rule {word} {address}/{LENGTH[family]} table 100 pref {60 + n}")
        for n, (family, word, address) in enumerate(words)
    ]


def no_route(stage):
    return stage.steelyard.drops().get("no-route", 0)


def is_refused(stage, row, tos=0, host="far", to=None):
    """True: a SYN is dropped as no-route. False: the connection is there."""
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
    """Which rows are refused."""
    refused = {str(row) for row in ROWS if is_refused(stage, row, tos)}
    assert refused == {str(row) for row in ROWS if concerns(row)}


def served(stage):
    check(stage, lambda row: False)


def test_rules_to_servers(modes):
    """Every mode sends packets to them."""
    hosts = modes.lab.servers()
    words = [(family, "to", h.address(family)) for h in hosts for family in (4, 6)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: True)
    served(modes)


@pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
def test_rules_to_one_family_of_servers(modes, family):
    """Packets to servers are the server's family, whatever the client's."""
    words = [(family, "to", h.address(family)) for h in modes.lab.servers()]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.server == family)
    served(modes)


def test_rules_to_clients(modes):
    """One-way servers answer past the forwarder."""
    far = modes.lab["far"]
    with added(modes, *rules((4, "to", far.v4), (6, "to", far.v6))):
        check(modes, lambda row: row.mode not in OWN_VIP)
        for row in OUTWARD:
            to = (far.address(row.client), SERVER_WEB)
            assert is_refused(modes, row, host="s1", to=to), row
    served(modes)


def test_rules_from_clients(modes):
    """Servers get the client's address under NAT and DR."""
    far = modes.lab["far"]
    with added(modes, *rules((4, "from", far.v4), (6, "from", far.v6))):
        check(modes, lambda row: row.mode in ("nat", "dr"))
    served(modes)


def test_rules_from_vips(modes):
    """Answers have it, where they come through the forwarder."""
    words = [(row.client, "from", row.vip) for row in ROWS]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode not in OWN_VIP)
    served(modes)


def test_rules_from_local_addresses(modes):
    """They are the source of FNAT's packets, and of tunnels."""
    words = [(6 if ":" in a else 4, "from", a) for a in local_addresses(FRONT)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode in ("fnat", "ipip"))
    served(modes)


def test_rules_for_tcp(modes):
    """A tunnel's packets are not TCP."""
    hosts = modes.lab.servers()
    words = [(family, "ipproto tcp to", h.address(family)) for h in hosts for family in (4, 6)]
    with added(modes, *rules(*words)):
        check(modes, lambda row: row.mode != "ipip")
    served(modes)


def test_routes_by_type_of_service(modes):
    """To servers by IPv4: sessions that begin with that type of service, and no others."""
    routes = [(4, f"route {h.v4}/32 tos {TOS:#x} via {v4(FRONT, 2)}") for h in modes.lab.servers()]
    with added(modes, *routes):
        served(modes)
        check(modes, lambda row: row.server == 4, TOS)
    check(modes, lambda row: False, TOS)
