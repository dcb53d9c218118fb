# SPDX-License-Identifier: Apache-2.0
"""Unmodified servers on the user-space stack behind a forwarder, by mode.

    client ─┬─ front [forwarder]
            ├─ s1: nginx by `steelyard run`; DR's VIPs on lo
            ├─ s2: lighttpd by `steelyard run`
            └─ router ─ far: NAT's client

One-armed, because a server of DR answers its clients itself. s1's gateway is the forwarder, as NAT
requires.
"""

import contextlib
import os

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.inet6 import IPv6

from tests.lab import Config, Lab, Server, Service, wait_until
from tests.lab.clients import connect, http_get, wrk
from tests.lab.run import kernel_connections, nginx_text, start_run
from tests.lab.servers import wait_listening
from tests.lab.steelyard import FAST_CHECKS, VIP, Steelyard, local_addresses
from tests.lab.topology import FRONT, v4, v6
from tests.wire.running import LARGE, digest, families, url

NAT, DIRECT = {4: v4(FRONT, 82), 6: v6(FRONT, 82)}, {4: v4(FRONT, 81), 6: v6(FRONT, 81)}
WEB, PROXIED, LIGHT = 8030, 8031, 8032
FRONT_TOA, FRONT_LIGHT, FRONT_ACROSS = 8040, 8041, 8042
FRONT_PROXY = {"proxy_v1": 8043, "proxy_v2": 8044}

NGINX = nginx_text("""\
    default_type text/plain;
    set_real_ip_from 10.0.0.0/24;
    set_real_ip_from fd00::/64;
    root {dir};
    server {{
        listen {web};
        listen [::]:{web};
        location = / {{ return 200 "s1\\n"; }}
        location = /who {{ return 200 "$remote_addr $remote_port $server_addr"; }}
    }}
    server {{
        listen {proxied} proxy_protocol;
        listen [::]:{proxied} proxy_protocol;
        real_ip_header proxy_protocol;
        location = / {{ return 200 "s1\\n"; }}
        location = /who {{ return 200 "$remote_addr $remote_port $server_addr"; }}
    }}
""")
LIGHTTPD = """\
server.document-root = "{dir}"
server.port = {light}
server.bind = "[::]"
server.set-v6only = "disable"
server.modules = ( "mod_accesslog" )
accesslog.filename = "{dir}/log"
accesslog.format = "%h %U"
mimetype.assign = ( "" => "text/plain" )
"""


def services(s1, s2):
    checks = {"type": "http", "path": "/"} | FAST_CHECKS | {"interval": "2s", "timeout": "2s"}
    for family in (4, 6):
        for how, front, server, port in (
            ("toa", FRONT_TOA, s1, WEB),
            ("proxy_v1", FRONT_PROXY["proxy_v1"], s1, PROXIED),
            ("proxy_v2", FRONT_PROXY["proxy_v2"], s1, PROXIED),
            ("toa", FRONT_LIGHT, s2, LIGHT),
        ):
            spread, servers = {"client_address": how}, [Server(server.address(family), port)]
            name = f"{how}-{front}-{family}"
            yield Service(name, VIP[family], front, spread=spread, servers=servers)
        for mode, vip in (("nat", NAT), ("dr", DIRECT)):
            servers = [Server(s1.address(family), WEB)]
            name = f"{mode}-{family}"
            yield Service(name, vip[family], WEB, mode=mode, health=checks, servers=servers)
    servers = [Server(s1.v4, WEB)]
    yield Service("6to4", VIP[6], FRONT_ACROSS, spread={"client_address": "toa"}, servers=servers)


def own_silently(host):
    """Configures the VIP on a DR server without announcing it."""
    host.ns.sysctl("ipv4.conf.all.arp_ignore", 1)
    host.ns.sysctl("ipv4.conf.all.arp_announce", 2)
    host.ns.ip(f"address add {DIRECT[4]}/32 dev lo")
    host.ns.ip(f"address add {DIRECT[6]}/128 dev lo nodad")


def folder(lab, name, text):
    """Makes a site that unprivileged workers can read."""
    made = lab.dir / name
    made.mkdir()
    made.chmod(0o755)
    (made / "large").write_bytes(os.urandom(LARGE))
    words = {"web": WEB, "proxied": PROXIED, "light": LIGHT}
    (made / "conf").write_text(text.format(dir=made, **words))
    return made


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=1, servers=2) as lab:
        own_silently(lab["s1"])
        lab.network.default_route("s1", v4(FRONT, 1), v6(FRONT, 1))
        for scope in ("all", "default", "front"):
            lab["forwarder"].ns.sysctl(f"ipv4.conf.{scope}.send_redirects", 0)
        lab.site = {"s1": folder(lab, "nginx", NGINX), "s2": folder(lab, "lighttpd", LIGHTTPD)}
        served = [lab["s1"].v4, lab["s1"].v6, *DIRECT.values()]
        options = [word for one in served for word in ("--address", one)]
        nginx = ["nginx", "-c", lab.site["s1"] / "conf"]
        lighttpd = ["lighttpd", "-D", "-f", lab.site["s2"] / "conf"]
        for name, argv, host, port, more in (
            ("nginx", nginx, "s1", WEB, options),
            ("lighttpd", lighttpd, "s2", LIGHT, []),
        ):
            started = start_run(lab, name, argv, *more, "--toa", host=host, interface="eth0")
            wait_listening(lab[host].ns, port)
            started.wait_for("is worker 0 of 1")
        config = Config(local_addresses(FRONT), list(services(lab["s1"], lab["s2"])))
        lab.steelyard = Steelyard(lab, config).start()
        lab.steelyard.wait_all_up()
        yield lab


@contextlib.contextmanager
def all_on_the_stack(lab):
    """Linux's TCP on the servers has no connection."""
    before = [kernel_connections(host) for host in lab.servers()]
    yield
    assert [kernel_connections(host) for host in lab.servers()] == before


def who(host, address, port):
    """Returns the client's address and port as the server reports them, and the client's own."""
    with connect(host, address, port, timeout_s=60) as one:
        one.sendall(b"GET /who HTTP/1.1\r\nHost: lab\r\nConnection: close\r\n\r\n")
        answer = b""
        while part := one.recv(65536):
            answer += part
        return answer.partition(b"\r\n\r\n")[2].decode(), "{} {}".format(*one.getsockname()[:2])


def check_bodies(lab, host, address, port):
    """A large file, and short connections."""
    body = http_get(lab[host], address, port, "/large", timeout_s=60)
    assert digest(body) == digest((lab.site["s1"] / "large").read_bytes())
    options = {"connections": 8, "keep_alive": False, "host": host}
    load = wrk(lab, url(address, port, ""), 200, **options)
    assert not load.failed, load


@families
def test_toa_shows_the_client(lab, family):
    with all_on_the_stack(lab):
        for _ in range(5):
            said, own = who(lab["client"], VIP[family], FRONT_TOA)
            assert said == f"{own} {lab['s1'].address(family)}"
        check_bodies(lab, "client", VIP[family], FRONT_TOA)


@families
def test_toa_shows_the_client_at_accept(lab, family):
    """lighttpd uses the address that accept() returns. Its IPv6 socket serves both families."""
    with all_on_the_stack(lab):
        path = f"/{os.urandom(8).hex()}"
        connection = connect(lab["client"], VIP[family], FRONT_LIGHT, timeout_s=60)
        with connection as one:
            one.sendall(f"GET {path} HTTP/1.0\r\n\r\n".encode())
            assert one.recv(12) == b"HTTP/1.0 404"
    log = lab.site["s2"] / "log"
    client = lab["client"].address(family)
    wait_until(lambda: f"{client} {path}\n" in log.read_text(), f"lighttpd logs {client}")


def test_toa_of_another_family_shows_the_local_address(lab):
    """An IPv6 client at an IPv4 socket: the server sees the forwarder's local address."""
    said, _ = who(lab["client"], VIP[6], FRONT_ACROSS)
    assert said.split()[0] in local_addresses(FRONT)


@pytest.mark.parametrize("version", FRONT_PROXY)
@families
def test_proxy_protocol_shows_the_client(lab, family, version):
    with all_on_the_stack(lab):
        said, own = who(lab["client"], VIP[family], FRONT_PROXY[version])
        assert said == f"{own} {lab['s1'].address(family)}"
        check_bodies(lab, "client", VIP[family], FRONT_PROXY[version])


@families
def test_nat_shows_the_client(lab, family):
    with all_on_the_stack(lab):
        said, own = who(lab["far"], NAT[family], WEB)
        assert said == f"{own} {lab['s1'].address(family)}"
        check_bodies(lab, "far", NAT[family], WEB)


@families
def test_direct_routing_answers_from_the_vip(lab, family):
    """s1 answers itself, from the VIP, which its interface does not have."""
    with all_on_the_stack(lab):
        capture = lab.capture("client")
        said, own = who(lab["client"], DIRECT[family], WEB)
        assert said == f"{own} {DIRECT[family]}"
        layer, port = IP if family == 4 else IPv6, int(own.split()[1])

        def is_answer(packet):
            return layer in packet and TCP in packet and packet[TCP].dport == port

        answer = capture.wait_for(is_answer, "the answer", outgoing=False)
        assert (answer.src, answer[layer].src) == (lab["s1"].ns.mac("eth0"), DIRECT[family])
        capture.close()
        check_bodies(lab, "client", DIRECT[family], WEB)
