# SPDX-License-Identifier: Apache-2.0
"""FNAT servers receive the client's address: by PROXY protocol, which nginx parses, or by TCP
option."""

import copy
import hashlib
import ipaddress
import os
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest
from scapy.layers.inet import TCP

from tests.lab import Server, Service, wait_until
from tests.lab.clients import HttpConnection, abort, connect, http_get, receive_exactly, wrk
from tests.lab.loss import losing
from tests.lab.servers import NGINX_CONFIG, wait_listening
from tests.lab.steelyard import FAST_CHECKS, SERVER_WEB, VIP
from tests.wire.conftest import check_accounting
from tests.wire.stage import SERVER_ECHO, Stage

PROXIED, PORTS = 8090, {"proxy_v1": 8101, "proxy_v2": 8102}
ACROSS = {"proxy_v1": 8105, "proxy_v2": 8106}  # IPv6 clients, an IPv4 server
TOA, TOA_ECHO, TOA_KIND = 8103, 8104, 254
HEADER_MAX = 107  # bytes of the PROXY protocol
# Returns the header's contents; stores uploads and returns them.
LOCATIONS = """\
    server {{
        listen 0.0.0.0:{proxied} proxy_protocol backlog=8192;
        listen [::]:{proxied} proxy_protocol backlog=8192;
        default_type text/plain;
        client_max_body_size 100m;
        location / {{ return 200 "{name}\\n"; }}
        location = /who {{
            return 200 "$proxy_protocol_addr $proxy_protocol_port $proxy_protocol_server_addr\\n";
        }}
        location /put/ {{ alias {dir}/put/; dav_methods PUT; }}
    }}
}}
"""

versions = pytest.mark.parametrize("version", PORTS)
families = pytest.mark.parametrize("family", (4, 6))
# Where one of each suffices.
pairs = pytest.mark.parametrize("version,family", (("proxy_v1", 4), ("proxy_v2", 6)))


class AddressStage(Stage):
    def start(self):
        super().start()
        host = self.lab["s1"]
        folder = self.lab.dir / "nginx-proxied"
        self.put = folder / "put"
        self.put.mkdir(parents=True)
        config = (NGINX_CONFIG.rstrip().removesuffix("}}") + LOCATIONS).format(
            dir=folder, name="s1", port=8091, proxied=PROXIED
        )
        (folder / "nginx.conf").write_text(config)
        argv = ["nginx", "-p", folder, "-c", folder / "nginx.conf"]
        self.proxied = self.lab.start("s1", "nginx-proxied", argv)
        wait_listening(host.ns, PROXIED)
        for family in (4, 6):
            address = host.address(family)
            # For busy cores. The test that waits for a server to be down has its own.
            patient = {"interval": "5s", "timeout": "5s"}
            health = {"type": "http", "path": "/"} | FAST_CHECKS | patient
            for version, port in PORTS.items():
                self.add(f"{version}-{family}", family, port, version, address, PROXIED, health)
                if family == 6:
                    own = host.address(4)
                    self.add(f"{version}-6to4", 6, ACROSS[version], version, own, PROXIED, health)
            self.add(f"toa-{family}", family, TOA, "toa", address, SERVER_WEB)
            self.add(f"toa-echo-{family}", family, TOA_ECHO, "toa", address, SERVER_ECHO)
        self.apply()
        self.steelyard.wait_in_sync()
        self.steelyard.wait_all_up()
        self.default = copy.deepcopy(self.config)

    def add(self, name, family, port, how, address, server_port, health=None):
        servers = [Server(address, server_port)]
        service = Service(name, VIP[family], port, servers=servers, spread={"client_address": how})
        if health:
            service.health = health
        self.config.services.append(service)


@pytest.fixture(scope="module", params=(1, 2), ids=("1-worker", "2-workers"))
def address_stage(request):
    with AddressStage(workers=request.param) as stage:
        yield stage


@pytest.fixture
def checked_stage(address_stage, request):
    yield from check_accounting(address_stage, request)


def ask_who(one, expected):
    """Returns the server's view of this connection, from its answer to a request on it."""
    assert one.get("/who") == expected


def identity(one, family):
    address, port = one.socket.getsockname()[:2]
    return f"{address} {port} {VIP[family]}"


def exchange(host, family, port, path, method="GET", body=b""):
    """Sends one request on a new connection; returns the answer's body."""
    name = f"[{VIP[family]}]" if family == 6 else VIP[family]
    with connect(host, VIP[family], port, timeout_s=60) as one:
        one.sendall(
            f"{method} {path} HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n"
            f"Content-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = b""
        while part := one.recv(1 << 20):
            answer += part
    head, _, content = answer.partition(b"\r\n\r\n")
    assert head.split()[1][:1] == b"2", head
    return content


@pytest.mark.parametrize("client", ("client", "far"))
@families
@versions
def test_nginx_receives_the_client_address(checked_stage, version, family, client):
    host = checked_stage.lab[client]
    with HttpConnection(host, VIP[family], PORTS[version]) as one:
        expected = identity(one, family)
        assert expected.startswith(host.address(family) + " ")
        for _ in range(5):
            ask_who(one, expected)
    with HttpConnection(host, VIP[family], PORTS[version]) as other:
        ask_who(other, identity(other, family))
        assert identity(other, family) != expected


@versions
def test_header_crosses_families(checked_stage, version):
    """The server's connection is IPv4; the header's client and VIP are IPv6."""
    port, content = ACROSS[version], os.urandom(300_000)
    for _ in range(2):
        with HttpConnection(checked_stage.client, VIP[6], port) as one:
            ask_who(one, identity(one, 6))
            ask_who(one, identity(one, 6))
    exchange(checked_stage.client, 6, port, f"/put/{version}-6to4", "PUT", content)
    assert (checked_stage.put / f"{version}-6to4").read_bytes() == content


@families
@versions
def test_sequence_numbers_stay_correct_under_loss(checked_stage, version, family):
    """Large uploads and downloads, without loss and with loss in both directions."""
    before = checked_stage.lab.counters()
    content = os.urandom(2_000_000)
    for permille in (0, 20):
        path = f"/put/{version}-{family}-{permille}"

        def there_and_back(path=path):
            exchange(checked_stage.client, family, PORTS[version], path, "PUT", content)
            kept = (checked_stage.put / path.removeprefix("/put/")).read_bytes()
            assert hashlib.sha256(kept).digest() == hashlib.sha256(content).digest()
            assert exchange(checked_stage.client, family, PORTS[version], path) == content

        if permille:
            with losing(checked_stage.lab, ("client", "s1"), permille):
                there_and_back()
        else:
            there_and_back()
    # Selective acknowledgements repaired the losses.
    after = checked_stage.lab.counters()
    for host in ("client", "s1"):
        recovered = [counters[host].get("TcpExtTCPSackRecovery", 0) for counters in (before, after)]
        assert recovered[1] > recovered[0]


def edges_of(packet):
    return {edge for kind, value in packet[TCP].options if kind == "SAck" for edge in value}


@pairs
def test_sack_blocks_are_edges_of_sent_segments(checked_stage, version, family):
    """Each edge of each SACK block that the client receives is an edge of its own segments."""
    port, wire = PORTS[version], checked_stage.lab.capture("client")
    with losing(checked_stage.lab, ("client", "s1"), 20):
        exchange(checked_stage.client, family, port, "/put/edges", "PUT", os.urandom(1_000_000))
    sent, heard = set(), set()
    for packet in wire.packets(lambda p: TCP in p and port in (p[TCP].sport, p[TCP].dport)):
        segment = packet[TCP]
        if segment.sport == port:
            heard |= edges_of(packet)
            continue
        sent |= {segment.seq, (segment.seq + len(segment.payload)) % 2**32}
        if segment.flags == "S":
            first = segment.seq + 1
    # The header itself may arrive twice and be reported so (RFC 2883), before all client data.
    unknown = {edge for edge in heard - sent if (first - edge) % 2**32 > HEADER_MAX}
    assert heard
    assert not unknown


def check_lost_handshakes(stage, version, family, clients):
    """Connects while a tenth of all segments is lost; servers must receive the client's address."""

    def one_client(_):
        with HttpConnection(stage.client, VIP[family], PORTS[version], timeout_s=60) as one:
            ask_who(one, identity(one, family))

    with losing(stage.lab, ("client", "s1"), 100), ThreadPoolExecutor(clients) as pool:
        list(pool.map(one_client, range(clients)))


@pairs
def test_header_comes_first_after_lost_handshakes(checked_stage, version, family):
    """Whichever of the first packets is lost, the server reads the header first."""

    check_lost_handshakes(checked_stage, version, family, 40)


@families
@versions
def test_load_fails_no_request(checked_stage, version, family):
    name = f"[{VIP[family]}]" if family == 6 else VIP[family]
    for keep_alive in (False, True):
        url = f"http://{name}:{PORTS[version]}/"
        load = wrk(checked_stage.lab, url, 500, keep_alive=keep_alive)
        assert not load.failed, load


def check_outlives_the_forwarder(stage, version, family):
    with HttpConnection(stage.client, VIP[family], PORTS[version]) as one:
        expected = identity(one, family)
        ask_who(one, expected)
        stage.steelyard.kill_forwarder()
        stage.steelyard.start_forwarder()
        for _ in range(3):
            ask_who(one, expected)
    stage.steelyard.wait_reconnected()


@pairs
def test_connection_survives_a_restart(checked_stage, version, family):
    check_outlives_the_forwarder(checked_stage, version, family)


def test_changed_option_applies_to_new_connections(checked_stage):
    service = checked_stage.config["proxy_v1-4"]
    with HttpConnection(checked_stage.client, VIP[4], PORTS["proxy_v1"]) as one:
        expected = identity(one, 4)
        ask_who(one, expected)
        service.spread["client_address"] = "proxy_v2"
        checked_stage.apply()
        checked_stage.steelyard.wait_in_sync()
        ask_who(one, expected)
        with HttpConnection(checked_stage.client, VIP[4], PORTS["proxy_v1"]) as other:
            ask_who(other, identity(other, 4))
        ask_who(one, expected)


@pytest.mark.drops("no-server")
def test_health_checks_send_the_header(checked_stage):
    """nginx refuses checks without it."""
    service = checked_stage.config["proxy_v1-4"]
    address = service.servers[0].address
    service.health = service.health | FAST_CHECKS
    service.spread["client_address"] = "none"
    checked_stage.apply()
    checked_stage.steelyard.wait_server(service.name, address, "down")
    service.spread["client_address"] = "proxy_v1"
    checked_stage.apply()
    checked_stage.steelyard.wait_server(service.name, address, "up")


def option_of(packet):
    """Returns (address, port) of a packet's option; None without option."""
    for kind, value in packet[TCP].options:
        if kind == TOA_KIND:
            return str(ipaddress.ip_address(value[2:])), struct.unpack("!H", value[:2])[0]
    return None


@families
def test_toa_is_sent_until_the_handshake_completes(checked_stage, family):
    """From the handshake's third segment until the server's acknowledgement."""
    wire = checked_stage.lab.capture("s1")
    with connect(checked_stage.client, VIP[family], TOA_ECHO) as one:
        expected = (checked_stage.client.address(family), one.getsockname()[1])
        one.sendall(b"hello")
        assert receive_exactly(one, 5) == b"hello"
        one.sendall(b"again")
        assert receive_exactly(one, 5) == b"again"

    def segments():
        return [
            packet[TCP]
            for packet in wire.packets(lambda p: TCP in p and p[TCP].dport == SERVER_ECHO)
        ]

    wait_until(lambda: any(b"again" in bytes(s.payload) for s in segments()), "all has arrived")
    seen = segments()
    first = [s for s in seen if not s.payload and s.flags == "A"][0]
    syns = [s for s in seen if "S" in s.flags]
    assert syns and not any(option_of(s) for s in syns)
    assert option_of(first) == expected
    for segment in seen:
        if b"hello" in bytes(segment.payload):
            assert option_of(segment) == expected
        if b"again" in bytes(segment.payload):
            assert option_of(segment) is None


@families
def test_toa_is_harmless_to_other_servers(checked_stage, family):
    """A kernel that ignores the option; a first segment without space for it."""
    name = f"[{VIP[family]}]" if family == 6 else VIP[family]
    load = wrk(checked_stage.lab, f"http://{name}:{TOA}/", 1000, keep_alive=False)
    assert not load.failed, load
    wire = checked_stage.lab.capture("s1")
    content = os.urandom(300_000)
    with connect(checked_stage.client, VIP[family], TOA_ECHO) as one, ThreadPoolExecutor(1) as pool:
        expected = (checked_stage.client.address(family), one.getsockname()[1])
        back = pool.submit(receive_exactly, one, len(content))
        one.sendall(content)
        assert back.result() == content

    def is_tagged(packet):
        return TCP in packet and packet[TCP].dport == SERVER_ECHO and option_of(packet)

    wire.wait_for(is_tagged, "the first segment is captured")  # one thread reads the frames
    assert {option_of(packet) for packet in wire.packets(is_tagged)} == {expected}


AGAIN = 60  # connections, each after a reset and from the previous one's port


def take_turns(again, ports):
    with ThreadPoolExecutor(len(ports)) as pool:
        list(pool.map(again, ports))


@versions
def test_client_reconnects_after_a_reset(checked_stage, version):
    """At once and from the same port, while the reset is still being validated."""

    def again(source_port):
        for _ in range(AGAIN):
            with HttpConnection(
                checked_stage.client, VIP[4], PORTS[version], timeout_s=60, source_port=source_port
            ) as one:
                ask_who(one, identity(one, 4))
                abort(one.socket)

    take_turns(again, (21001, 21002, 21003))  # none that the kernel assigns to others


def test_client_reconnects_after_a_reset_with_toa(checked_stage):
    """The segment that completes each handshake carries the option."""
    ports, wire = (21004, 21005, 21006), checked_stage.lab.capture("s1")

    def again(source_port):
        for _ in range(AGAIN):
            one = connect(
                checked_stage.client, VIP[4], TOA_ECHO, timeout_s=60, source_port=source_port
            )
            one.sendall(b"hello")
            assert receive_exactly(one, 5) == b"hello"
            abort(one)

    take_turns(again, ports)
    begun, bare = {}, []
    for packet in wire.packets(lambda p: TCP in p and p[TCP].dport == SERVER_ECHO):
        segment = packet[TCP]
        if segment.flags == "S":
            begun[segment.sport] = segment.seq
        elif "R" not in segment.flags and segment.seq == begun.get(segment.sport, -1) + 1:
            option = option_of(packet)
            if (
                option is None
                or option[0] != checked_stage.client.address(4)
                or option[1] not in ports
            ):
                bare.append(segment.summary())
            del begun[segment.sport]
    assert not bare


@families
def test_toa_has_the_address_of_routed_clients(checked_stage, family):
    assert http_get(checked_stage.lab["far"], VIP[family], TOA) == b"s1\n"
