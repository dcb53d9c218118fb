# SPDX-License-Identifier: Apache-2.0
"""The usual load generators of nginx and redis on the user-space stack: wrk with ten thousand
connections, h2load, redis-benchmark with hundreds of clients and with pipelines.

Both ends count every answer. Speed does not matter here (docs/benchmarks.md)."""

import collections
import re
import signal

import pytest

from tests.lab import wait_until
from tests.lab.clients import finish_wrk, http_get, start_wrk
from tests.lab.run import kernel_connections, nginx_text
from tests.wire.running import V4, V6, cli, families, site, start, url

MANY = 10_000
STREAMS = 10
PLAIN, H2C, TLS = 8002, 8005, 8006

LOG = """\
log_format connections "$connection $server_protocol $status $body_bytes_sent";
    access_log {dir}/log connections;"""
NGINX = nginx_text(
    """\
    keepalive_timeout 600s;
    ssl_certificate {dir}/certificate;
    ssl_certificate_key {dir}/key;
    server {{
        listen 8002 backlog=16384;
        listen [::]:8002 backlog=16384;
        listen 8005 http2;
        listen [::]:8005 http2;
        listen 8006 ssl http2;
        listen [::]:8006 ssl http2;
        root {dir};
        location = /status {{ stub_status; access_log off; }}
    }}
""",
    workers=2,
    connections=16_000,
    files=16_384,
    log=LOG,
)


def served(folder):
    """Returns what nginx has answered: lists of connection, protocol, status, bytes."""
    return [line.split() for line in (folder / "log").read_text().splitlines()]


def answered_twice(folder):
    """Returns how many connections had two answers."""
    answers = collections.Counter(line[0] for line in served(folder))
    return sum(count > 1 for count in answers.values())


def opened(lab):
    """Returns how many connections both workers have now, except that of the request itself."""
    text = http_get(lab["client"], V4, PLAIN, "/status", timeout_s=120).decode()
    return int(re.search(r"Active connections: (\d+)", text)[1]) - 1


@pytest.fixture
def nginx(stack):
    """Makes a folder with a small and a large page, served by two workers."""
    folder = site(stack, "nginx", NGINX)
    stack["client"].ns.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        + ["-subj", "/CN=lab", "-keyout", folder / "key", "-out", folder / "certificate"]
    )
    (folder / "log").write_text("")
    before = kernel_connections(stack["forwarder"])
    start(stack, "nginx", ["nginx", "-c", folder / "conf"], PLAIN, workers=2)
    yield folder
    assert kernel_connections(stack["forwarder"]) == before


def test_ten_thousand_connections_are_all_answered(stack, nginx):
    """All are open at once; none fails. A client that sends a second request has read the first
    answer."""
    where, patience = url(V4, PLAIN, ""), {"seconds": 600, "timeout_s": 120}
    load = start_wrk(stack, where, 0, connections=MANY, pause_ms=1000, **patience)
    wait_until(lambda: opened(stack) == MANY, "all are open")
    wait_until(lambda: answered_twice(nginx) == MANY, "each was answered twice")
    load.child.send_signal(signal.SIGINT)
    report = finish_wrk(load)
    assert not report.failed, report
    assert {line[2] for line in served(nginx)} == {"200"}


H2LOAD = re.compile(
    r"requests: (\d+) total, (\d+) started, (\d+) done, (\d+) succeeded, "
    r"(\d+) failed, (\d+) errored, (\d+) timeout"
)


def h2load(lab, where, requests, clients, *options):
    """All requests must succeed."""
    argv = ["h2load", "-n", requests, "-c", clients, "-m", STREAMS, *options, where]
    out = lab["client"].ns.run(argv)
    counts = [int(word) for word in H2LOAD.search(out).groups()]
    assert counts == [requests] * 4 + [0] * 3, out
    return out


@families
@pytest.mark.parametrize("secure", (False, True), ids=("cleartext", "tls"))
def test_h2load_requests_all_succeed(stack, nginx, family, secure):
    """Many streams per connection, small answers and large ones."""
    port = TLS if secure else H2C
    base = url((V4, V6)[family == 6], port, "").replace("http", "https" if secure else "http")
    out = h2load(stack, base + "/index.html", 4000, 100)
    assert "Application protocol: h2" in out
    h2load(stack, base + "/large", 20, 4)

    def all_are_logged():
        return len(served(nginx)) == 4020

    wait_until(all_are_logged, "nginx has logged all")
    lines = served(nginx)
    assert {(line[1], line[2]) for line in lines} == {("HTTP/2.0", "200")}
    assert len({line[0] for line in lines}) == 104


def calls(lab, command):
    """Returns how often redis has served a command."""
    found = re.search(
        rf"cmdstat_{command}:calls=(\d+)",
        cli(lab["client"], "-h", V4, "-p", "8000", "info", "commandstats"),
    )
    return int(found[1]) if found else 0


def info(lab, field):
    text = cli(lab["client"], "-h", V4, "-p", "8000", "info")
    return int(re.search(rf"{field}:(\d+)", text)[1])


@pytest.mark.parametrize(
    ("clients", "pipeline", "requests"), ((500, 1, 10_000), (500, 16, 64_000), (50, 64, 64_000))
)
def test_redis_benchmark_requests_are_all_served(stack, clients, pipeline, requests):
    """With -r, keys are random: a million of them. redis counts every request, and redis-benchmark
    ends only when each is answered."""
    before = kernel_connections(stack["forwarder"])
    start(
        stack,
        "redis",
        ["redis-server", "--port", 8000, "--bind", V4, "--protected-mode", "no"]
        + ["--save", "", "--dir", stack.dir],
        8000,
    )
    words = ["redis-benchmark", "-h", V4, "-p", 8000, "-c", clients, "-P", pipeline]
    words += ["-n", requests, "-r", 1_000_000, "-t", "set,get,lpush,lrange_100", "--csv"]
    report = stack["client"].ns.run(words)
    assert report.count('"SET"') == report.count('"GET"') == report.count('"LPUSH"') == 1
    for command in ("set", "get", "lpush", "lrange"):
        assert calls(stack, command) >= requests
    assert info(stack, "total_connections_received") >= 4 * clients
    assert info(stack, "total_error_replies") == 0
    assert kernel_connections(stack["forwarder"]) == before
