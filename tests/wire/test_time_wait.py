# SPDX-License-Identifier: Apache-2.0
"""TIME-WAIT of servers, and its effect on new connections."""

import contextlib
import errno
import socket
import threading
from collections import Counter

import pytest

from tests.lab import Server, wait_until
from tests.lab.steelyard import VIP
from tests.lab.wait import within_tries
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
CLOSER = 9011  # port of a server that closes first
PORTS = 252  # slot and local address that the system does not use

DEAF = """\
table inet deaf {
    chain in {
        type filter hook input priority 0
        ip saddr { 10.1.0.200, 10.1.0.201 } tcp flags & rst == rst drop
        ip6 saddr { fd00:1::200, fd00:1::201 } tcp flags & rst == rst drop
    }
}
"""


class ClosingServer:
    """Accepts, sends one byte and closes first: the server is in TIME-WAIT. A context manager."""

    def __init__(self, host, family):
        kind = socket.AF_INET if family == 4 else socket.AF_INET6
        self.listener = host.ns.socket(kind)
        self.listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.listener.bind(("", CLOSER))
        self.listener.listen(100)
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        with contextlib.suppress(OSError):
            while True:
                one, _ = self.listener.accept()
                one.sendall(b"x")
                one.close()

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.thread.join()
        self.listener.close()


def visit(host, family, port):
    """Opens one connection from this port to a server that closes first."""
    kind = socket.AF_INET if family == 4 else socket.AF_INET6
    for _ in range(100_000):
        with host.ns.socket(kind) as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.settimeout(60)
            one.bind(("", port))
            try:
                one.connect((VIP[family], ECHO))
            except OSError as error:
                # The previous connection's last acknowledgement is still in flight.
                if error.errno == errno.EADDRNOTAVAIL:
                    continue
                raise
            assert one.recv(2) == b"x"
            assert one.recv(1) == b""
            return
    raise AssertionError(f"port {port} of {host} does not become free")


def time_waits(host, port=CLOSER):
    return host.ns.run(["ss", "-Htan", "state", "time-wait", f"sport = :{port}"]).splitlines()


def slot_of(stage, service, host, family, port):
    client = host.address(family)
    for session in stage.steelyard.sessions("--service", service):
        if (session["client"], session["client_port"]) == (client, port):
            return session["slot"]
    raise AssertionError("no session of it")


def one_slot(stage, service, family):
    """Returns a port of each client in one slot: they share the local ports."""
    hosts = {name: stage.lab[name] for name in ("client", "far")}
    visit(hosts["client"], family, 20000)
    slot = slot_of(stage, service, hosts["client"], family, 20000)
    for first in range(20001, 24000, 200):
        for port in range(first, first + 200):
            visit(hosts["far"], family, port)
        for session in stage.steelyard.sessions("--service", service, "--limit", "100000"):
            if session["client"] == hosts["far"].address(family) and session["slot"] == slot:
                return (hosts["client"], 20000), (hosts["far"], session["client_port"])
    raise AssertionError("4000 ports miss one slot of 256")


@contextlib.contextmanager
def closing_service(stage, family, host="s1"):
    """The echo service with a server that closes first, and one local address."""
    service = stage.config[f"echo{family}"]
    server = stage.lab[host]
    service.servers = [Server(server.address(family), CLOSER)]
    keep = stage.config.local_addresses[0 if family == 4 else 2]
    stage.config.local_addresses = [
        one for one in stage.config.local_addresses if (":" in one) != (":" in keep)
    ] + [keep]
    with ClosingServer(server, family):
        yield service, server


# A connection's last segment may arrive after its server was removed, or its session has ended.
@families
@pytest.mark.drops("server-removed", "no-session")
def test_time_wait_of_a_server_costs_no_client_a_retransmission(stage, family):
    """Two clients, whose timestamps differ widely, share 252 ports towards one server that closes
    first: each tuple is reused within a second, and every first SYN succeeds."""
    with closing_service(stage, family) as (service, s1):
        service.timeouts = {"time_wait": "1s"}
        stage.apply()
        clients = one_slot(stage, service.name, family)
        hosts = [host for host, _ in clients] + [s1]

        def grown(name, before):
            after = [host.ns.counters() for host in hosts]
            return [a[name] - b[name] for a, b in zip(after, before, strict=True)]

        def are_first():
            """Not if the machine has stood still for a second meanwhile."""
            before = [host.ns.counters() for host in hosts]
            for _ in range(300):
                for host, port in clients:
                    visit(host, family, port)
            assert grown("TcpExtPAWSTimewait", before) == [0, 0, 0]
            return grown("TcpExtTCPSynRetrans", before) == [0, 0, 0]

        within_tries(3, are_first, "every first SYN succeeds")
        # The server's TIME_WAIT of a minute ends with the sessions.
        wait_until(lambda: not time_waits(s1), "the server has forgotten them")


@families
# A last segment may arrive after its server was removed, or its session has ended.
@pytest.mark.drops("server-removed", "no-session")
def test_client_in_time_wait_succeeds_by_its_second_syn(stage, family):
    """The server receives no reset and keeps TIME-WAIT for every port: of two clients, the one with
    older timestamps is refused once, and then succeeds from the same port."""
    grown = Counter()
    for server, first in (("s1", 0), ("s2", 1)):
        with closing_service(stage, family, server) as (service, host):
            stage.apply()
            clients = one_slot(stage, service.name, family)
            hosts = (clients[0][0], clients[1][0], host)
            before = [one.ns.counters() for one in hosts]
            host.ns.run(["nft", "-f", "-"], stdin=DEAF)
            for _ in range(PORTS):
                visit(clients[first][0], family, clients[first][1])
            host.ns.run(["nft", "delete", "table", "inet", "deaf"])
            visit(clients[1 - first][0], family, clients[1 - first][1])
            for one, then in zip(hosts, before, strict=True):
                now = one.ns.counters()
                for name in ("TcpExtTCPSynRetrans", "TcpExtPAWSTimewait"):
                    grown[name] += now[name] - then[name]
    assert grown["TcpExtTCPSynRetrans"] == grown["TcpExtPAWSTimewait"] <= 1
