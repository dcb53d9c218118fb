# SPDX-License-Identifier: Apache-2.0
"""Unmodified Debian programs on the user-space stack (docs/run.md), servers and clients, against
Linux's TCP."""

import json
import os
import re
import shutil
import signal
import socket
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.hooks import hook, stack_name
from tests.lab.run import kernel_connections, nginx_text, start_run
from tests.lab.servers import start_nginx, wait_listening
from tests.lab.stacks import listed
from tests.wire.running import (
    LARGE,
    LIGHTTPD,
    V4,
    V6,
    cli,
    digest,
    families,
    on_stack,
    sanitized,
    site,
    start,
    url,
    workers_seen,
)

INSIDE = """\
    sendfile on;
    server {{
        listen 8002;
        listen [::]:8002;
        root {dir};
        location = /pid {{ return 200 "$pid"; }}
        location /behind/ {{ proxy_pass http://10.0.0.10:8080/; }}
    }}
"""
NGINX, NGINX_TWO = nginx_text(INSIDE), nginx_text(INSIDE, workers=2)

HAPROXY = """\
global
    nbthread {threads}
defaults
    mode http
    timeout connect 20s
    timeout client 20s
    timeout server 20s
frontend front
    bind {v4}:8003
    default_backend back
backend back
    server one 10.0.0.10:8080
"""


# ---- servers -------------------------------------------------------------------------------------


@sanitized
def test_redis_serves_commands_and_saves(stack):
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    start(
        stack,
        "redis",
        ["redis-server", "--port", 8000, "--bind", V4, "127.0.0.1", "--protected-mode", "no"]
        + ["--save", "", "--dir", stack.dir],
        8000,
    )
    assert cli(client, "-h", V4, "-p", "8000", "set", "key", "value") == "OK"
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "get,set", "-n", 5000, "-c", 50, "-q"]
    )
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "get", "-n", 20000, "-P", 16, "-q"]
    )
    # A value of many segments, and a child process that saves the data while connections are open.
    client.ns.run(
        ["redis-benchmark", "-h", V4, "-p", 8000, "-t", "set", "-n", 50, "-d", 200000, "-q"]
    )
    assert "started" in cli(client, "-h", V4, "-p", "8000", "bgsave")
    wait_until(
        lambda: "rdb_bgsave_in_progress:0" in cli(client, "-h", V4, "-p", "8000", "info"), "saved"
    )
    assert "rdb_last_bgsave_status:ok" in cli(client, "-h", V4, "-p", "8000", "info")
    assert kernel_connections(host) == before
    # One epoll instance serves both kinds: a client on the same host uses Linux's TCP.
    assert cli(host, "-h", "127.0.0.1", "-p", "8000", "get", "key") == "value"
    assert cli(host, "-h", V4, "-p", "8000", "get", "key") == "value"
    assert kernel_connections(host) == before + 4


@families
def test_lighttpd_serves_files(stack, family):
    folder = site(stack, "lighttpd", LIGHTTPD)
    before = kernel_connections(stack["forwarder"])
    start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    address = (V4, V6)[family == 6]
    assert http_get(stack["client"], address, 8001, "/index.html") == b"hello"
    body = http_get(stack["client"], address, 8001, "/large", timeout_s=60)
    assert digest(body) == digest((folder / "large").read_bytes())
    stack["client"].ns.run(
        ["wrk", "-t1", "-c20", "-d1", "--timeout", "30s", url(address, 8001, "/index.html")]
    )
    assert kernel_connections(stack["forwarder"]) == before


def frames(host):
    """Returns how many frames have arrived at its interface."""
    (told,) = json.loads(host.ns.run(["ip", "-s", "-j", "link", "show", "dev", "eth0"]))
    return told["stats64"]["rx"]["packets"]


@sanitized
@pytest.mark.parametrize("sums", ("on", "off"))
@families
def test_large_segments_pass_veth_with_checksum_offload(stack, family, sums):
    """With checksum offload, a veth passes them on whole; without it, Linux segments them."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    host, client = stack["forwarder"], stack["client"]
    command = ["lighttpd", "-D", "-f", folder / "conf"]
    start(stack, "lighttpd", command, 8001, "--large-segments")
    host.ns.run(["ethtool", "-K", "front", "tx", sums])
    try:
        before = frames(client)
        body = http_get(client, (V4, V6)[family == 6], 8001, "/large", timeout_s=60)
        came = frames(client) - before
    finally:
        host.ns.run(["ethtool", "-K", "front", "tx", "off"])
    assert digest(body) == digest((folder / "large").read_bytes())
    singly = LARGE / 1460
    assert came < singly * 0.75 if sums == "on" else came >= singly


def test_frames_lost_without_carrier_are_counted(stack):
    """A download continues when the link has a carrier again."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    host, client, switch = (stack[name].ns for name in ("forwarder", "client", "switch"))
    name = stack_name("unsent")
    start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001, "--name", name)
    # Linux deletes its other neighbour entries when the carrier is lost.
    neighbour = f"{stack['client'].v4} dev front"
    host.ip(f"neigh replace {neighbour} lladdr {client.mac('eth0')} nud permanent")
    try:
        with connect(stack["client"], V4, 8001, timeout_s=60) as slow:
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 << 10)
            slow.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            data = receive_exactly(slow, 1000)
            assert listed(name)["unsent"] == 0
            switch.ip("link set forwarder-front down")
            wait_until(lambda: listed(name)["unsent"] > 0, "packets are not sent")
            switch.ip("link set forwarder-front up")
            while part := slow.recv(65536):
                data += part
    finally:
        switch.ip("link set forwarder-front up")
        host.ip(f"neigh del {neighbour}")
    assert digest(data.partition(b"\r\n\r\n")[2]) == digest((folder / "large").read_bytes())
    assert "it could not send" in hook(name, "list", check=False)


def test_large_segments_refused_by_a_full_queue_are_counted(stack):
    """Linux's queue is full. Lost data is retransmitted in single segments."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    host, client, name = stack["forwarder"], stack["client"], stack_name("refused")
    command = ["lighttpd", "-D", "-f", folder / "conf"]
    start(stack, "lighttpd", command, 8001, "--large-segments", "--name", name)
    assert http_get(client, V4, 8001, "/index.html") == b"hello"
    assert listed(name)["unsent"] == 0
    queue = "dev front root tbf".split()
    narrow = "rate 1kbit burst 1600 limit 1600".split()
    host.ns.run(["tc", "qdisc", "add", *queue, *narrow])
    try:
        with ThreadPoolExecutor(1) as pool:
            body = pool.submit(http_get, client, V4, 8001, "/large", timeout_s=60)
            wait_until(lambda: listed(name)["unsent"] > 0, "the queue is full")
            host.ns.run(["tc", "qdisc", "del", *queue[:3]])
            assert digest(body.result()) == digest((folder / "large").read_bytes())
    finally:
        host.ns.run(["tc", "qdisc", "del", *queue[:3]], check=False)


@sanitized
@families
def test_nginx_with_two_workers(stack, family):
    folder = site(stack, "nginx", NGINX_TWO)
    before = kernel_connections(stack["forwarder"])
    process = start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, workers=2)
    first = workers_seen(stack, 2)
    address = (V4, V6)[family == 6]
    for _ in range(4):
        body = http_get(stack["client"], address, 8002, "/large", timeout_s=60)
        assert digest(body) == digest((folder / "large").read_bytes())
    assert kernel_connections(stack["forwarder"]) == before
    # The successor of a killed worker gets its queue.
    victim = min(first)
    os.kill(victim, signal.SIGKILL)
    wait_until(lambda: process.output().count("is worker") == 3, "a new worker has the queue")
    assert victim not in workers_seen(stack, 2)
    assert kernel_connections(stack["forwarder"]) == before


@sanitized
def test_answers_reach_the_worker_that_connected(stack):
    """Answers to a worker's own connections are spread over both queues."""
    folder = site(stack, "nginx", NGINX_TWO)
    before = kernel_connections(stack["forwarder"])
    start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, workers=2)
    for _ in range(40):
        body = http_get(stack["client"], V4, 8002, "/behind/", timeout_s=60)
        assert body.decode().strip() == "client"
    assert kernel_connections(stack["forwarder"]) == before


def gone(pid):
    return not Path(f"/proc/{pid}").exists()


@sanitized
@pytest.mark.parametrize("daemon", (False, True), ids=("foreground", "daemon"))
def test_nginx_reload_refuses_no_client(stack, daemon):
    """A new worker gets the stack when the old one has exited. In between it serves new clients by
    Linux's socket, and a download continues."""
    folder = site(stack, "nginx", NGINX.replace("daemon off;", "") if daemon else NGINX)
    host = stack["forwarder"]
    before = kernel_connections(host)
    process = start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002)
    old = int(http_get(stack["client"], V4, 8002, "/pid", timeout_s=60))
    with connect(stack["client"], V4, 8002, timeout_s=60) as slow:
        slow.sendall(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        data = receive_exactly(slow, 1000)
        host.ns.run(["kill", "-HUP", (folder / "pid").read_text().strip()])
        process.wait_for("waits for a queue")
        process.wait_for(rf"{old}#{old}: gracefully shutting down")

        def ask():
            """Until the old worker has closed its listening sockets, it may still answer."""
            while (pid := int(http_get(stack["client"], V4, 8002, "/pid", timeout_s=60))) == old:
                pass
            return pid

        new = ask()
        assert kernel_connections(host) > before
        while part := slow.recv(65536):
            data += part
    body = data.partition(b"\r\n\r\n")[2]
    assert digest(body) == digest((folder / "large").read_bytes())
    wait_until(lambda: gone(old), "the old worker has ended")
    assert new != old
    wait_until(lambda: process.output().count("is worker 0 of 1") == 2, "it has the queue")
    before = kernel_connections(host)
    assert new == int(http_get(stack["client"], V4, 8002, "/pid", timeout_s=60))
    assert kernel_connections(host) == before


def test_nginx_upgrade_refuses_no_client(stack):
    """The new program inherits the listening sockets. Linux serves clients that connect after the
    old worker's exit and before the new one has a queue."""
    text = NGINX.replace("daemon off;", "env LD_PRELOAD;\nenv STEELYARD_RUN;")
    folder = site(stack, "nginx", text)
    client, host = stack["client"], stack["forwarder"]
    before = kernel_connections(host)
    process = start(stack, "nginx", [shutil.which("nginx"), "-c", folder / "conf"], 8002)
    old = int(http_get(client, V4, 8002, "/pid", timeout_s=60))
    master = (folder / "pid").read_text().strip()
    host.ns.run(["kill", "-USR2", master])
    waiting = int(process.wait_for(r"pid (\d+) waits for a queue")[1])
    os.kill(waiting, signal.SIGSTOP)
    host.ns.run(["kill", "-QUIT", master])
    wait_until(lambda: gone(old) and gone(master), "the old program has ended")
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(http_get, client, V4, 8002, "/pid", timeout_s=60)
        wait_until(lambda: kernel_connections(host) > before, "Linux connects it")
        os.kill(waiting, signal.SIGCONT)
        assert int(answer.result()) == waiting
    wait_until(lambda: process.output().count("is worker 0 of 1") == 2, "it has the queue")
    before = kernel_connections(host)
    assert int(http_get(client, V4, 8002, "/pid", timeout_s=60)) == waiting
    assert kernel_connections(host) == before
    os.kill(process.pid, signal.SIGQUIT)
    assert process.wait() == 0


@families
def test_icmp_errors_reach_the_worker_with_the_connection(stack, family):
    """A router's errors about a narrow path all arrive by one queue. Oversized segments are not
    sent repeatedly."""
    folder = site(stack, "nginx", NGINX_TWO)
    start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002, workers=2)
    router, address = stack["router"].ns, (V4, V6)[family == 6]
    capture = stack.capture("router")
    router.sysctl("ipv4.icmp_ratelimit", 0)
    router.sysctl("ipv6.icmp.ratelimit", 0)
    router.ip("link set far0 mtu 1400")
    try:
        for _ in range(8):
            body = http_get(stack["far"], address, 8002, "/large", timeout_s=60)
            assert digest(body) == digest((folder / "large").read_bytes())
    finally:
        router.ip("link set far0 mtu 1500")

    frames = [Ether(data) for _, data in list(capture.frames) if len(data) > 1414]
    sent = Counter((one[TCP].dport, one[TCP].seq) for one in frames if TCP in one)
    assert sent and max(sent.values()) <= 2, sent.most_common(5)


@sanitized
@pytest.mark.parametrize("threads", (1, 2))
def test_haproxy_serves_and_connects(stack, threads):
    """Its threads share one stack."""
    folder = site(stack, "haproxy", HAPROXY.replace("{threads}", str(threads)))
    before = kernel_connections(stack["forwarder"])
    start(stack, "haproxy", ["haproxy", "-db", "-f", folder / "conf"], 8003)
    for _ in range(20):
        assert http_get(stack["client"], V4, 8003).decode().strip() == "client"
    stack["client"].ns.run(["wrk", "-t1", "-c20", "-d1", "--timeout", "30s", f"http://{V4}:8003/"])
    assert kernel_connections(stack["forwarder"]) == before


def test_other_ports_stay_with_linux(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    before = kernel_connections(stack["forwarder"])
    start_nginx(stack, "forwarder", port=8010)
    process = start_run(stack, "ports", ["lighttpd", "-D", "-f", folder / "conf"], "--port", 8004)
    wait_listening(stack["forwarder"].ns, 8001)
    assert http_get(stack["client"], V4, 8010).decode().strip() == "forwarder"
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"
    assert kernel_connections(stack["forwarder"]) == before + 2
    assert "is worker" not in process.output()


def test_frames_for_another_mac_get_no_answer(stack):
    """A switch floods them. Frames for the right address, sent in between, are answered."""
    folder = site(stack, "lighttpd", LIGHTTPD)
    start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    capture = stack.capture("client")
    mine, theirs = stack["client"].ns.mac("eth0"), stack["forwarder"].ns.mac("front")

    def ask(sport, to):
        syn = IP(src=stack["client"].v4, dst=V4) / TCP(sport=sport, dport=8001, flags="S", seq=1)
        capture.send(Ether(src=mine, dst=to) / syn)

    def answered(ports):
        return lambda packet: TCP in packet and packet[TCP].dport in ports

    for turn in range(8):
        ask(6000 + turn, "02:00:00:00:00:99")
        ask(6100 + turn, theirs)
        capture.wait_for(answered([6100 + turn]), "the answer", outgoing=False)
    assert not capture.packets(answered(range(6000, 6008)), outgoing=False)


def test_no_folder_of_eal_is_left(stack):
    folder = site(stack, "lighttpd", LIGHTTPD)
    process = start(stack, "lighttpd", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    pid = re.search(r"pid (\d+) is worker", process.output())[1]
    assert not [one for one in ("/run", "/tmp") if Path(one, "dpdk", f"run-{pid}").exists()]


def test_dpdk_folder_of_another_user_is_no_error(stack):
    """The worker is not root and cannot create its own folder there."""
    folder = site(stack, "nginx", NGINX)
    hide = 'mkdir -p /tmp/dpdk && mount -t tmpfs -o mode=700 none /tmp/dpdk && exec "$@"'
    nginx = ["nginx", "-c", folder / "conf"]
    process = start(stack, "nginx", ["unshare", "-m", "sh", "-c", hide, "sh", *nginx], 8002)
    http_get(stack["client"], V4, 8002, "/pid", timeout_s=60)
    assert "EAL" not in process.output()


def test_worker_without_a_queue_warns(stack):
    """A worker may wait for an old one to exit at a reload; a worker that waits for long warns."""
    folder = site(stack, "nginx", NGINX_TWO)
    process = start(stack, "nginx", ["nginx", "-c", folder / "conf"], 8002)
    process.wait_for("waits for a queue")
    assert "warning" not in process.output()
    told = process.wait_for("waited for a queue for 10 s.*")[0]
    assert "--workers" in told and "worker_shutdown_timeout" in told


# ---- clients -------------------------------------------------------------------------------------


@families
def test_curl_downloads_and_uploads(stack, family):
    peer = stack["client"]
    address = peer.address(family)
    large = stack.dir / "nginx-client" / "files" / "large"
    large.write_bytes(os.urandom(LARGE))
    before = kernel_connections(stack["forwarder"])
    assert on_stack(stack, "curl", "-sS", url(address, 8080, "/")).strip() == "client"
    copy = stack.dir / "copy"
    on_stack(stack, "curl", "-sS", "-o", copy, url(address, 8080, "/files/large"))
    assert digest(copy.read_bytes()) == digest(large.read_bytes())
    refused = on_stack(stack, "curl", "-sS", url(address, 8012, "/"), check=False)
    assert refused.returncode == 7 and "Couldn't connect" in refused.stderr
    assert kernel_connections(stack["forwarder"]) == before


@sanitized
@families
def test_clients_fetch_over_the_stack(stack, family):
    peer = stack["client"]
    address = peer.address(family)
    before = kernel_connections(stack["forwarder"])
    where = url(address, 8080, "/")
    report = on_stack(stack, "wrk", "-t1", "-c20", "-d1", "--timeout", "30s", where)
    assert "requests in" in report and "Socket errors" not in report
    server = ["redis-server", "--port", 8011, "--protected-mode", "no", "--save", ""]
    stack.start("client", "redis-client", [*server, "--dir", stack.dir])
    wait_listening(peer.ns, 8011)
    assert on_stack(stack, "redis-cli", "-h", address, "-p", 8011, "ping").strip() == "PONG"
    assert kernel_connections(stack["forwarder"]) == before
