# SPDX-License-Identifier: Apache-2.0
"""Programs between clients and servers: balancers, caches, proxies, ends of TLS."""

import signal

from tests.programs.asks import held, http, https, quick, secure, talk
from tests.programs.checks import (
    children,
    left_to_linux,
    proxies,
    reload,
    replaced,
    serves,
    threads,
    workers,
)
from tests.programs.program import Program

CHILD = "Linux: a child has no stack of its own, so what it opens is Linux's"
REOPENS = (
    "gap: it closes its listeners and opens them again, and clients of that moment are refused or"
    " reset, on Linux as well"
)
FETCHED = http("/", "client")
QUICK = quick("/", "client")

HAPROXY = """\
global
    chroot {dir}
    user www-data
    group www-data
    nbthread 2
    stats socket {dir}/stats expose-fd listeners
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind :::{port} v4v6
    bind :::{tls} v4v6 ssl crt {dir}/pem
    http-request return status 200 content-type text/plain string hello if { path /index.html }
    default_backend back
backend back
    server one {peer}:{backend}
"""


def pem(place):
    with open(place.dir / "pem", "w") as file:
        file.write(place.cert.read_text() + place.key.read_text())


def through(scheme="http", proxy="http", port=None):
    """A request through the proxy."""

    def ask(place, address):
        at = place.at(address, place.program.tls if proxy == "https" else None)
        words = ["--proxy", f"{proxy}://{at}", "--proxy-cacert", place.cert, "--noproxy", ""]
        got = place.curl(f"{scheme}://{place.client.v4}:8080/", *words)
        assert got.strip() == "client", got

    return ask


def tunnel(place, address):
    """By CONNECT."""
    got = place.curl(
        f"http://{place.client.v4}:8080/",
        "--proxytunnel",
        "--proxy",
        f"http://{place.at(address)}",
        "--noproxy",
        "",
    )
    assert got.strip() == "client", got


SQUID = """\
http_port {port}
https_port {tls} tls-cert={cert} tls-key={key}
http_access allow all
cache deny all
pid_filename {dir}/pid
access_log none
cache_log /dev/stderr
coredump_dir {dir}
shutdown_lifetime 1 seconds
pinger_enable off
netdb_filename none
acl CONNECT method CONNECT
"""

TINYPROXY = """\
User www-data
Group www-data
Port {port}
Listen 0.0.0.0
Listen ::
Timeout 60
MaxClients 50
LogLevel Notice
"""

HITCH = """\
frontend = "[*]:{tls}"
frontend = "[*]:{port}"
backend = "[{peer}]:{backend}"
pem-file = "{dir}/pem"
workers = 2
daemon = off
user = "www-data"
group = "www-data"
"""

STUNNEL = """\
foreground = yes
pid = {dir}/pid
debug = notice
[one]
accept = :::{tls}
connect = {peer}:{backend}
cert = {cert}
key = {key}
[two]
client = no
accept = :::{port}
connect = {peer}:{backend}
cert = {cert}
key = {key}
"""

ANSWER = """\
#!/bin/sh
while read -r line && [ ${#line} -gt 1 ]; do :; done
printf 'HTTP/1.0 200 OK\\r\\n\\r\\nhello'
"""

PROGRAMS = (
    Program(
        "haproxy",
        7100,
        ("/usr/sbin/haproxy", "-W", "-f", "{dir}/conf"),
        {
            "serves": serves(http()),
            "proxies": proxies(FETCHED),
            "TLS": serves(https()),
            "threads": threads(http(), 3),
            "fork": workers(http()),
            "reload": reload(quick(), signal.SIGUSR2, replaced),
        },
        files={"conf": HAPROXY},
        prepare=pem,
        sample=True,
    ),
    Program(
        "varnish",
        7110,
        (
            "varnishd",
            "-F",
            "-n",
            "{dir}/work",
            "-a",
            ":{port}",
            "-b",
            "{peer}:{backend}",
            "-p",
            "thread_pool_min=10",
            "-p",
            "thread_pools=1",
        ),
        {
            "serves": serves(FETCHED),
            "proxies": proxies(http("/uncached", "client")),
            "threads": threads(FETCHED, 10),
            "fork": workers(FETCHED),
        },
    ),
    Program(
        "squid",
        7120,
        ("squid", "-N", "-f", "{dir}/conf"),
        {
            "serves": serves(through()),
            "proxies": proxies(tunnel),
            "TLS": serves(through(proxy="https"), [4]),
        },
        files={"conf": SQUID},
    ),
    Program(
        "tinyproxy",
        7130,
        ("tinyproxy", "-d", "-c", "{dir}/conf"),
        {
            "serves": serves(through()),
            "proxies": proxies(tunnel),
            "threads": threads(through(), 3),
            "reload": reload(through(), signal.SIGUSR1),
        },
        files={"conf": TINYPROXY},
    ),
    Program(
        "hitch",
        7140,
        ("hitch", "--config={dir}/conf"),
        {
            "serves": serves(https("/", "client")),
            "proxies": proxies(https("/", "client")),
            "TLS": serves(https("/", "client")),
            "fork": workers(https("/", "client")),
            "reload": reload(https("/", "client"), signal.SIGHUP, replaced),
        },
        files={"conf": HITCH},
        prepare=pem,
        workers=2,
    ),
    Program(
        "stunnel",
        7150,
        ("stunnel", "{dir}/conf"),
        {
            "serves": serves(https("/", "client")),
            "proxies": proxies(https("/", "client")),
            "TLS": serves(https("/", "client")),
            "threads": threads(https("/", "client"), 3),
            "reload": reload(https("/", "client"), signal.SIGHUP, loses=True),
        },
        files={"conf": STUNNEL},
        notes={"reload": REOPENS},
    ),
    Program(
        "socat",
        7160,
        ("socat", "TCP6-LISTEN:{port},fork,reuseaddr,ipv6only=0", "EXEC:cat"),
        {
            "serves": serves(talk(">hello", "<hello")),
            "fork": children(talk(">hello", "<hello"), held(">hello", "<hello")),
        },
        sample=True,
    ),
    Program(
        "socat, OpenSSL",
        7170,
        (
            "socat",
            "OPENSSL-LISTEN:{port},fork,reuseaddr,pf=ip6,ipv6only=0,cert={cert},key={key},verify=0",
            "EXEC:{dir}/answer",
        ),
        {"TLS": serves(secure())},
        files={"answer": ANSWER},
        prepare=lambda place: (place.dir / "answer").chmod(0o755),
        row="socat",
    ),
    Program(
        "socat, TCP",
        7174,
        ("socat", "TCP6-LISTEN:{port},fork,reuseaddr,ipv6only=0", "TCP:{peer}:{backend}"),
        {"proxies": left_to_linux(FETCHED)},
        notes={"proxies": CHILD},
        row="socat",
    ),
)
