# SPDX-License-Identifier: Apache-2.0
"""Restarts and upgrades with sessions of every mode, family and client-address option at once.

One stage has all of them: each replacement of the forwarder tests every combination."""

import copy
import shutil
import signal
import socket
import threading
from contextlib import ExitStack

import pytest

from tests.lab import Server, Service, wait_until
from tests.lab.clients import HttpConnection, dns_txt
from tests.lab.loss import losing
from tests.lab.mode_table import OUTWARD, ROWS
from tests.lab.servers import NGINX_CONFIG, wait_listening
from tests.lab.steelyard import SERVER_DNS, SERVER_WEB
from tests.lab.traffic import Traffic
from tests.wire.conftest import check_accounting
from tests.wire.mode_stage import ModeStage

# Client-address options, and the port of their services on each FNAT VIP.
OPTIONS = {"toa": 8103, "proxy_v1": 8101, "proxy_v2": 8102}
PROXIED = 8090  # where servers expect PROXY protocol
REPORTED = [(row, option) for row in ROWS if row.mode == "fnat" for option in OPTIONS]
SERVERS = ("s1", "s2")  # of those services
LOCATIONS = """\
    server {{
        listen 0.0.0.0:{proxied} proxy_protocol backlog=8192;
        listen [::]:{proxied} proxy_protocol backlog=8192;
        default_type text/plain;
        location / {{ return 200 "{name}\\n"; }}
        location = /who {{
            return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr\\n";
        }}
        location /files/ {{ alias {files}/; add_header X-Served-By {name}; }}
    }}
}}
"""
# How the forwarder is replaced, and the next one's number of workers.
REPLACEMENTS = (("killed", 2), ("stopped", 1), ("upgraded", 2), ("killed", 1), ("upgraded", 1))
SOURCES = {"killed": "crashed", "stopped": "stopped", "upgraded": "handed-over"}


class RestartStage(ModeStage):
    """Every mode, and FNAT with every option."""

    def start(self):
        super().start()
        for name in SERVERS:
            self.start_proxied(name)
        for row, option in REPORTED:
            port = SERVER_WEB if option == "toa" else PROXIED
            servers = [Server(self.lab[name].address(row.server), port) for name in SERVERS]
            spread = {"client_address": option}
            self.config.services.append(
                Service(f"{option}-{row}", row.vip, OPTIONS[option], servers=servers, spread=spread)
            )
        self.apply()
        self.steelyard.wait_in_sync()
        self.default = copy.deepcopy(self.config)

    def start_proxied(self, name):
        folder = self.lab.dir / f"nginx-proxied-{name}"
        folder.mkdir()
        files = self.lab.dir / f"nginx-{name}" / "files"
        text = (NGINX_CONFIG.rstrip().removesuffix("}}") + LOCATIONS).format(
            dir=folder, name=name, port=8091, proxied=PROXIED, files=files
        )
        (folder / "nginx.conf").write_text(text)
        self.lab.start(name, folder.name, ["nginx", "-p", folder, "-c", folder / "nginx.conf"])
        wait_listening(self.lab[name].ns, PROXIED)


@pytest.fixture(scope="module")
def restart_stage():
    with RestartStage(arms=1) as stage:
        yield stage


@pytest.fixture
def stage(restart_stage, request):
    yield from check_accounting(restart_stage, request)


def replace_forwarder(steelyard, way, workers):
    if way == "upgraded":
        steelyard.upgrade(workers=workers)
    else:
        number = signal.SIGKILL if way == "killed" else signal.SIGTERM
        steelyard.restart_forwarder(number, workers=workers)


class ReportedConnection:
    """A connection to a service that reports the client's address to its servers."""

    def __init__(self, stage, row, option):
        self.row, self.option = row, option
        self.one = HttpConnection(stage.lab["far"], row.vip, OPTIONS[option], timeout_s=60)

    def check(self):
        """Checks the address that the server received, if the server returns it."""
        if self.option == "toa":
            assert self.one.get() in SERVERS
            return
        address, port = self.one.socket.getsockname()[:2]
        assert self.one.get("/who") == f"{address} {port} {self.row.vip}", (self.row, self.option)

    def close(self):
        self.one.close()


class NewConnections(threading.Thread):
    """Opens one connection after another: some are between SYN and header at the kill."""

    def __init__(self, stage, row, option):
        super().__init__(daemon=True)
        self.parts = stage, row, option
        self.count, self.failure, self.stopping = 0, None, False

    def run(self):
        try:
            while not self.stopping:
                one = ReportedConnection(*self.parts)
                one.check()
                one.close()
                self.count += 1
        except (OSError, AssertionError) as error:
            self.failure = error

    def failed(self):
        return f"{self.parts[2]}-{self.parts[1]}: {self.failure!r}" if self.failure else None


class Connections:
    """Long-lived connections and flows of all combinations under load, and new connections all the
    time."""

    def __init__(self, stage):
        self.stage = stage
        far, outward = stage.lab["far"], stage.lab["s3"]
        self.reported = [ReportedConnection(stage, row, option) for row, option in REPORTED]
        self.web = [HttpConnection(far, row.vip, row.ports[0], timeout_s=60) for row in ROWS]
        self.web += [
            HttpConnection(outward, far.address(row.client), SERVER_WEB, timeout_s=60)
            for row in OUTWARD
        ]
        self.dns = [(far, row.vip, row.ports[1]) for row in ROWS]
        self.dns += [(outward, far.address(row.client), SERVER_DNS) for row in OUTWARD]
        self.dns = [(self.udp_socket(host, vip), vip, port) for host, vip, port in self.dns]
        self.servers = self.ask()
        self.new = [NewConnections(stage, row, option) for row, option in REPORTED]
        self.traffic = [self.inward(), self.outward()]

    @staticmethod
    def udp_socket(host, address):
        return host.ns.socket(
            socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_DGRAM
        )

    def inward(self):
        def target(row, port):
            return f"[{row.vip}]:{port}" if row.client == 6 else f"{row.vip}:{port}"

        web = [target(row, row.ports[0]) for row in ROWS]
        web += [target(row, OPTIONS[option]) for row, option in REPORTED]
        dns = [target(row, row.ports[1]) for row in ROWS]
        return Traffic(
            self.stage.lab, 2 * len(web), len(web), 2 * len(dns), host="far", web=web, dns=dns
        )

    def outward(self):
        far = self.stage.lab["far"]
        web = [f"{far.v4}:{SERVER_WEB}", f"[{far.v6}]:{SERVER_WEB}"]
        dns = [f"{far.v4}:{SERVER_DNS}", f"[{far.v6}]:{SERVER_DNS}"]
        return Traffic(self.stage.lab, 4, 2, 4, host="s3", web=web, dns=dns)

    def ask(self):
        """Returns each answering server; lost datagrams are sent again."""
        return [one.get() for one in self.web] + [self.ask_udp(*one) for one in self.dns]

    @staticmethod
    def ask_udp(one, address, port):
        for _ in range(100):
            try:
                return dns_txt(None, address, port, timeout_s=0.3, one=one)
            except (TimeoutError, ConnectionError):
                continue
        raise AssertionError(f"no answer at {address} port {port}")

    def provide(self):
        """Copies the content to the web servers, and to `far` for outward downloads."""
        self.traffic[0].provide()
        lab = self.stage.lab
        shutil.copy(lab.dir / "nginx-s1/files/content", lab.dir / "nginx-far/files/content")

    def start(self):
        self.provide()
        for one in self.traffic:
            assert not one.start("-period", "100ms")["failures"]
        for one in self.new:
            one.start()

    def check_servers(self):
        """Each connection is answered, and each combination has opened a new connection since."""
        before = [one.count for one in self.new]
        for one in self.traffic:
            report = one.step()
            assert not report["failures"], report["examples"]
        for one in self.reported:
            one.check()
        assert self.ask() == self.servers
        wait_until(
            lambda: self.failures()
            or all(one.count > n for one, n in zip(self.new, before, strict=True)),
            "each cell begins a connection",
        )
        assert not self.failures()

    def failures(self):
        return [one.failed() for one in self.new if one.failed()]

    def finish(self):
        for one in self.new:
            one.stopping = True
        for one in self.new:
            one.join()
        for one in self.traffic:
            report = one.finish()
            assert not report["failures"], report["examples"]
        assert not self.failures()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for one in self.new:
            one.stopping = True
        for one in (*self.reported, *self.web):
            one.close()
        for one, _, _ in self.dns:
            one.close()


# A closed connection's last segments find no session.
@pytest.mark.drops("no-session")
def test_every_mode_and_option_survives_restarts(stage):
    steelyard = stage.steelyard
    with Connections(stage) as connections:
        connections.start()
        for way, workers in REPLACEMENTS:
            replace_forwarder(steelyard, way, workers)
            connections.check_servers()
            steelyard.wait_reconnected()
            status = steelyard.get("status")["forwarder"]
            found = status["adoption"]
            assert status["workers"] == workers
            assert found["source"] == SOURCES[way]
            assert found["refused"] == ""
            # Connections that were just opening or closing.
            ended = {name for name, n in found["results"].items() if n}
            assert ended <= {"kept", "torn", "expired"}, found
            assert found["results"]["kept"] >= len(connections.reported) + len(connections.servers)
        connections.finish()


def sessions_of(stage):
    """Returns the states of sessions of services with an option, by VIP, port and client port."""
    ports = set(OPTIONS.values())
    return {
        (one["vip"], one["vip_port"], one["client_port"]): one["state"]
        for one in stage.steelyard.sessions("--limit", "100000")
        if one["vip_port"] in ports
    }


def test_kill_around_the_header_loses_no_connection(stage):
    """The forwarder is killed between a connection's SYN and the header or option, and again before
    the header is acknowledged; the next one has another number of workers each time."""
    steelyard, opened = stage.steelyard, {}

    def open_one(row, option):
        one = opened[row, option] = ReportedConnection(stage, row, option)
        one.check()

    def all_are(state):
        seen = {key: now for key, now in sessions_of(stage).items() if key not in earlier}
        return len(seen) == len(REPORTED) and set(seen.values()) == {state}

    def die_and_begin(workers):
        steelyard.kill_forwarder()
        steelyard.options.workers = workers
        steelyard.start_forwarder()
        steelyard.wait_in_sync()

    earlier = sessions_of(stage)  # closing ones
    threads = [threading.Thread(target=open_one, args=cell, daemon=True) for cell in REPORTED]
    with ExitStack() as client_hears_nothing, ExitStack() as servers_hear_nothing:
        client_hears_nothing.enter_context(losing(stage.lab, ("far",), 1000))
        for one in threads:
            one.start()
        wait_until(lambda: all_are("syn-received"), "servers have answered each SYN")
        die_and_begin(2)
        assert all_are("syn-received")
        servers_hear_nothing.enter_context(losing(stage.lab, SERVERS, 1000))
        client_hears_nothing.close()
        wait_until(lambda: all_are("established"), "each client has sent its first data")
        die_and_begin(1)
        assert all_are("established")
        servers_hear_nothing.close()
        for one in threads:
            one.join(60)
    assert set(opened) == set(REPORTED)
    for one in opened.values():
        one.check()
        one.close()
