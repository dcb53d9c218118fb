# SPDX-License-Identifier: Apache-2.0
"""Which ends are notified that a session has ended: by a command, a server's failure, a timeout, or
lost sessions. And clients that reconnect from the port of a lost connection."""

import contextlib
import errno
import signal
import socket
import struct

import pytest

from tests.lab import Server, wait_until
from tests.lab.clients import HttpConnection, abort, connect, receive_exactly
from tests.lab.mode_table import ROWS
from tests.lab.servers import EchoServer
from tests.lab.steelyard import FAST_CHECKS, SERVER_WEB, VIP, WEB
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
# Packets that still arrive at a closing session, and after it.
ended = pytest.mark.drops("session-killed", "server-removed", "no-session")

# A hung host: it answers neither clients nor health checks.
HUNG = f"""\
table inet hung {{
    chain in {{
        type filter hook input priority 0
        tcp dport {SERVER_WEB} drop
    }}
}}
"""
TCP_REPAIR = 19

WITNESS = 9307  # port of servers that record how their connections ended


class Witness(EchoServer):
    """Echoes, and records how each connection ended: {peer: errno, 0 if closed}."""

    def __init__(self, host, family):
        self.ends = {}
        super().__init__(host, WITNESS, family)

    def _echo(self, connection):
        peer = connection.getpeername()[:2]
        try:
            while data := connection.recv(65536):
                connection.sendall(data)
            self.ends[peer] = 0
        except OSError as error:
            self.ends[peer] = error.errno

    def close(self):
        """Resets its connections: no retransmission disturbs another test."""
        for connection in self.connections:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        super().close()


class EchoService:
    """The echo service of a family, with witnesses on s1 and s2. A context manager."""

    def __init__(self, stage, family, timeouts=None, resets=None):
        self.stage, self.family = stage, family
        self.service = stage.config[f"echo{family}"]
        self.service.timeouts = timeouts or {}
        self.service.spread = {"resets": resets} if resets else {}
        self.clients = []

    def __enter__(self):
        hosts = [self.stage.lab[name] for name in ("s1", "s2")]
        self.witnesses = {host.name: Witness(host, self.family) for host in hosts}
        self.service.servers = [Server(host.address(self.family), WITNESS) for host in hosts]
        self.stage.apply()
        return self

    def __exit__(self, *_):
        for client in self.clients:
            abort(client)
        for witness in self.witnesses.values():
            witness.close()

    def address(self, server):
        return self.stage.lab[server].address(self.family)

    def target(self, server):
        """Returns the server in the form of commands."""
        address = f"[{self.address(server)}]" if self.family == 6 else self.address(server)
        return f"{address}:{WITNESS}@{self.service.name}"

    def session(self, client):
        port = client.getsockname()[1]
        found = self.stage.steelyard.sessions("--service", self.service.name)
        return next(session for session in found if session["client_port"] == port)

    def open(self):
        """Returns a connection that has echoed once: its socket, its server, and its peer as the
        server sees it."""
        client = connect(self.stage.client, VIP[self.family], ECHO)
        self.clients.append(client)
        echo(client)
        session = self.session(client)
        (server,) = (n for n in self.witnesses if self.address(n) == session["server"])
        return client, server, (session["local"], session["local_port"])

    def open_on(self, wanted):
        for _ in range(20):
            client, server, peer = self.open()
            if server == wanted:
                return client, peer
        raise AssertionError(f"no session comes to {wanted}")

    def check_reset(self, client, server, peer):
        """Both ends are reset, although neither sends anything."""
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        ends = self.witnesses[server].ends
        wait_until(lambda: peer in ends, f"{server} hears that the session is over")
        assert ends[peer] == errno.ECONNRESET

    def check_avoids(self, server):
        """Other sessions continue, and new ones use other servers."""
        assert {self.open()[1] for _ in range(6)} == set(self.witnesses) - {server}


def echo(client):
    client.sendall(b"x")
    assert receive_exactly(client, 1) == b"x"


@ended
@families
def test_kill_resets_both_ends(stage, family):
    with EchoService(stage, family) as echoes:
        doomed, peer = echoes.open_on("s1")
        other, _ = echoes.open_on("s2")
        stage.steelyard.cli("kill", echoes.target("s1"))
        echoes.check_reset(doomed, "s1", peer)
        echoes.check_avoids("s1")
        echo(other)
        stage.steelyard.cli("kill", echoes.target("s1"), "--undo")
        stage.steelyard.wait_server(echoes.service.name, echoes.address("s1"), "up")
        again, _ = echoes.open_on("s1")
        echo(again)
        echo(other)


@ended
@families
def test_deadline_of_a_drain_resets_both_ends(stage, family):
    with EchoService(stage, family) as echoes:
        doomed, peer = echoes.open_on("s1")
        other, _ = echoes.open_on("s2")
        stage.steelyard.cli("drain", echoes.target("s1"), "--deadline", "1s")
        echoes.check_reset(doomed, "s1", peer)
        stage.steelyard.wait_server(echoes.service.name, echoes.address("s1"), "kill")
        echoes.check_avoids("s1")
        echo(other)


@ended
@families
def test_expiry_resets_both_ends(stage, family):
    """By default."""
    with EchoService(stage, family, {"established": "1s"}) as echoes:
        client, server, peer = echoes.open()
        echoes.check_reset(client, server, peer)


@ended
@pytest.mark.parametrize(
    ("family", "drained"), ((4, False), (6, False), (4, True)), ids=("v4", "v6", "drained")
)
def test_failed_server_resets_its_clients(stage, family, drained):
    """A server that hangs, drained or not. One of its two services has resets for clients
    enabled."""
    web, quiet = stage.config[f"web{family}"], stage.config[f"echo{family}"]
    web.spread = {"resets": {"down": True}}
    address = stage.lab["s3"].address(family)
    quiet.servers, quiet.health = [Server(address, SERVER_WEB)], web.health
    stage.apply()
    with contextlib.ExitStack() as stack:
        reset = stack.enter_context(keep_alive(stage, family, "s3"))
        other = stack.enter_context(keep_alive(stage, family, "s1"))
        patient = stack.enter_context(HttpConnection(stage.client, VIP[family], ECHO))
        assert patient.get() == "s3"
        if drained:
            name = f"{address}@{web.name}"
            stage.steelyard.cli("drain", name)
            stage.steelyard.wait_server(web.name, address, "drain")
            stack.callback(stage.steelyard.cli, "drain", name, "--undo")
        stage.nginx["s3"].send(signal.SIGSTOP)
        try:
            with pytest.raises(ConnectionResetError):
                reset.socket.recv(1)
            for service in (web, quiet):
                stage.steelyard.wait_server(service.name, address, "down")
            assert other.get() == "s1"
        finally:
            stage.nginx["s3"].send(signal.SIGCONT)
        assert patient.get() == "s3"


def keep_alive(stage, family, server):
    """Returns a connection that this server has answered."""
    for _ in range(20):
        connection = HttpConnection(stage.client, VIP[family], WEB)
        if connection.get() == server:
            return connection
        connection.close()
    raise AssertionError(f"{server} never answered")


@pytest.mark.drops("no-session")
@families
def test_packet_without_a_session_is_reset(stage, family):
    """After the sessions were lost; a service without this setting sends nothing."""
    steelyard = stage.steelyard
    with EchoService(stage, family, resets={"unknown": True}) as echoes:
        client, _, _ = echoes.open()
        silent = keep_alive(stage, family, "s1").socket
        echoes.clients.append(silent)
        steelyard.forwarder.stop()
        steelyard.cleanup()
        steelyard.start_forwarder()
        steelyard.wait_reconnected()
        silent.sendall(b"x")
        wait_until(lambda: stage.accounting.dropped().get("no-session"), "its session is not known")
        client.sendall(b"x")
        with pytest.raises(ConnectionResetError):
            client.recv(1)
        assert silent.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == 0
        echo(echoes.open()[0])


# ---- every mode ----------------------------------------------------------------------------------


@ended
def test_kill_resets_both_ends_in_every_mode(modes):
    s1, far, steelyard = modes.lab["s1"], modes.lab["far"], modes.steelyard
    with contextlib.ExitStack() as stack:
        clients = {}
        for row in ROWS:
            tries = (HttpConnection(far, row.vip, row.ports[0]) for _ in range(20))
            one = next(one for one in map(stack.enter_context, tries) if one.get() == "s1")
            clients[str(row)] = one.socket
        assert len(connections(s1)) >= len(ROWS)
        for family in (4, 6):
            steelyard.cli("kill", s1.address(family))
        try:
            silent = [name for name, one in clients.items() if not is_reset(one)]
            assert not silent
            wait_until(
                lambda: not connections(s1), lambda: f"s1 hears of it, too: {connections(s1)}"
            )
        finally:
            for family in (4, 6):
                steelyard.cli("kill", s1.address(family), "--undo")
    steelyard.wait_all_up()


def is_reset(one):
    try:
        return one.recv(1) is None
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


def connections(host):
    """Returns the connections of its web server."""
    argv = ["ss", "-Htan", "state", "established", f"sport = :{SERVER_WEB}"]
    return host.ns.run(argv).splitlines()


def vanish(stage, server):
    """Opens a connection of every mode to this server, which the client loses as in a power cut.
    Returns each row's port."""
    far, ports = stage.lab["far"], {}
    with contextlib.ExitStack() as stack:
        for row in ROWS:
            tries = (HttpConnection(far, row.vip, row.ports[0]) for _ in range(20))
            one = next(one for one in map(stack.enter_context, tries) if one.get() == server)
            ports[row] = one.socket.getsockname()[1]
            one.socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)  # its end sends nothing
            one.close()
    return ports


def check_return(stage, ports, server):
    """Clients that reconnect from the same port are served by another server."""
    far = stage.lab["far"]
    for row, port in ports.items():
        with HttpConnection(far, row.vip, row.ports[0], timeout_s=60, source_port=port) as one:
            assert one.get() != server, f"{row}: the server that is out of service was used"


def prepare(stage, defence):
    for service in stage.config.services:
        if service.name.startswith("web-"):
            service.health = {"type": "tcp"} | FAST_CHECKS
        if service.name.startswith(("web-fnat", "web-nat")):
            service.spread["syn_defence"] = defence
    stage.apply()
    stage.steelyard.wait_in_sync()
    stage.steelyard.wait_all_up()


@pytest.mark.drops("no-session", "nat-stray", "opening", "bad-tcp-state", "icmp-unhandled")
@pytest.mark.parametrize("defence", ("off", "always"), ids=("plain", "spliced"))
def test_client_reconnects_from_its_port_after_a_hang_or_drain(modes, defence):
    s1, s2, steelyard = modes.lab["s1"], modes.lab["s2"], modes.steelyard
    prepare(modes, defence)
    hung, drained = vanish(modes, "s1"), vanish(modes, "s2")
    s1.ns.run(["nft", "-f", "-"], stdin=HUNG)
    try:
        for row in ROWS:
            steelyard.wait_server(f"web-{row}", s1.address(row.server), "down")
        check_return(modes, hung, "s1")
        for family in (4, 6):
            steelyard.cli("drain", s2.address(family))
        for row in ROWS:
            steelyard.wait_server(f"web-{row}", s2.address(row.server), "drain")
        check_return(modes, drained, "s2")
    finally:
        s1.ns.run(["nft", "delete", "table", "inet", "hung"])
        for family in (4, 6):
            steelyard.cli("drain", s2.address(family), "--undo")
    steelyard.wait_all_up()
