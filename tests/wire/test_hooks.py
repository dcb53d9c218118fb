# SPDX-License-Identifier: Apache-2.0
"""Hooks of unmodified programs (docs/hooks.md): loaded, listed, replaced and removed while they
run.

Tests check the order in which requests are served, never the time."""

import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import connect
from tests.lab.commands import run_steelyard
from tests.lab.hooks import hook, hook_list, packets_received, stack_name, stopped
from tests.lab.lab import ROOT, Lab
from tests.lab.process import run
from tests.lab.run import nginx_text, start_run
from tests.lab.stacks import listed
from tests.lab.steelyard import STEELYARD

V4 = "10.0.0.1"
ORDER = Path(__file__).with_name("order.py")
URGENT, OTHERS = 3, 5


@pytest.fixture(scope="module")
def lab():
    """One queue: arrivals have an order."""
    with Lab(arms=1, servers=0) as lab:
        yield lab


@pytest.fixture
def stack(lab):
    """Stops what a test started; then nothing remains, including sockets."""
    first = len(lab.processes)
    yield lab
    for process in lab.processes[first:]:
        process.kill()
    lab["forwarder"].ns.kill_all()
    wait_until(
        lambda: "xdp" not in lab["forwarder"].ns.ip("link show front"), "the XDP program is gone"
    )


def start_server(stack, kind, *options):
    """Returns the stack's name and the server's process id."""
    name = stack_name(kind)
    process = start_run(stack, kind, [sys.executable, ORDER, 8005, kind], "--name", name, *options)
    pid = process.wait_for(r"pid (\d+)")[1]
    process.wait_for("is worker 0 of 1")  # until then, Linux accepts the connections
    return name, int(pid)


class Client:
    def __init__(self, host, label):
        self.label = label
        self.one = connect(host, V4, 8005)
        self.file = self.one.makefile("rb")
        assert self.file.readline() == b"welcome\n"

    def place(self):
        """Returns how many lines were served before its line."""
        label, _, number = self.file.readline().rpartition(b" ")
        assert label == self.label
        return int(number)

    def close(self):
        self.file.close()
        self.one.close()


def served_order(stack, pid, others=b"others", urgent=b"urgent"):
    """Sends others' requests first, then urgent ones, while the server is stopped. Returns the
    labels in the order served."""
    host = stack["client"]
    clients = [Client(host, others) for _ in range(OTHERS)]
    clients += [Client(host, urgent) for _ in range(URGENT)]
    with stopped(pid, stack["forwarder"]) as send:
        for client in clients:
            send(client.one, client.label + b"\n")
    order = [label for _, label in sorted((c.place(), c.label) for c in clients)]
    for client in clients:
        client.close()
    return order


ARRIVED = [b"others"] * OTHERS + [b"urgent"] * URGENT
SORTED = [b"urgent"] * URGENT + [b"others"] * OTHERS
FLOOD = 2000  # packets: fills a queue of 2048, and more than a quarter of 16 MB
PATTERN = ("--param", '1="urgent\\n"', "--param", f"2={0xFFFFFFFFFFFFFF00}", "--param", "4=6")


@pytest.mark.parametrize("kind", ("epoll", "poll", "select"))
def test_urgent_connections_are_reported_first(stack, kind):
    """By each wait call of an unmodified program. Without the hook, or after its removal, arrival
    order holds."""
    name, pid = start_server(stack, kind)
    assert served_order(stack, pid) == ARRIVED
    assert "loaded in 1 stack" in hook(name, "load", "urgent", "pattern", *PATTERN)
    assert served_order(stack, pid) == SORTED
    hooks, stacks = hook_list(name)
    assert stacks == 1
    assert hooks["urgent"]["levels"][0] >= URGENT
    assert hooks["urgent"]["levels"][6] >= OTHERS
    assert hooks["urgent"]["where"] == ["default"]
    # The reverse: others' requests are urgent.
    hook(name, "set", "urgent", "3=6", "4=1")
    assert served_order(stack, pid) == ARRIVED
    hook(name, "rm", "urgent")
    assert hook_list(name)[0] == {}
    assert served_order(stack, pid) == ARRIVED


@pytest.mark.parametrize("kind", ("epoll", "poll", "select"))
def test_urgent_connections_stay_first(stack, kind):
    """However often: a level that earlier waits have passed over, and that was then reported, has
    no claim to come first."""
    name, pid = start_server(stack, kind)
    hook(name, "load", "urgent", "pattern", *PATTERN)
    for _ in range(20):
        assert served_order(stack, pid) == SORTED


def test_segment_hook_at_a_listener_covers_accepted_connections(stack):
    """Connections accepted from then on, each with earlier bytes."""
    name, pid = start_server(stack, "epoll")
    old = Client(stack["client"], b"old")
    hook(name, "load", "few", "bytes", "--listen", ":8005", "--param", "0=1", "--param", "1=7")
    hooks, _ = hook_list(name)
    assert hooks["few"]["kind"] == "segment"
    assert hooks["few"]["where"] == [":8005"]
    old.one.sendall(b"old\n")
    old.place()
    new = Client(stack["client"], b"new")
    new.one.sendall(b"new\n")
    new.place()
    assert hook_list(name)[0]["few"]["calls"] == 1
    old.close()
    new.close()


def test_http_requests_are_ordered_by_path_and_method(stack):
    """An API precedes all other requests; within it, reads come first."""
    name, pid = start_server(stack, "epoll")
    reads, writes = b"GET /api/a HTTP/1.1", b"POST /api/a HTTP/1.1"
    page = b"GET /large HTTP/1.1"
    hook(name, "load", "api", "http_path", "--param", '0="/api/"', "--param", "1=5")
    for urgent in (reads, writes):
        assert served_order(stack, pid, page, urgent) == [urgent] * URGENT + [page] * OTHERS
    hook(name, "set", "api", "4=7")
    for urgent in (reads, page):
        assert served_order(stack, pid, writes, urgent) == [urgent] * URGENT + [writes] * OTHERS


def test_overload_drops_the_least_urgent(stack):
    """More packets arrive than the queue holds, the urgent ones last: these are served, and some of
    the others are dropped and counted."""
    name, pid = start_server(stack, "epoll", "--memory", 16)
    hook(name, "load", "urgent", "pattern", *PATTERN)
    client, server = stack["client"], stack["forwarder"]
    clients = [Client(client, b"urgent") for _ in range(URGENT)]
    wire = stack.capture("client")
    other = bytes(
        Ether(src=client.ns.mac("eth0"), dst=server.ns.mac("front"))
        / IP(src=client.v4, dst=V4)
        / TCP(sport=7001, dport=8005, flags="PA", seq=1, ack=1)
        / b"others\n"
    )
    with stopped(pid, server) as send:
        before = packets_received(server)
        for _ in range(FLOOD):
            wire.socket.send(other)
        wait_until(lambda: packets_received(server) >= before + FLOOD, "all others have arrived")
        for one in clients:
            send(one.one, b"urgent\n")
    for one in clients:
        one.place()
        one.close()
    stack.close_captures()
    dropped = listed(name)["dropped"]
    assert 0 < dropped[6] < FLOOD
    assert sum(dropped) == dropped[6]
    assert f"its backlog was full (level:packets): 6:{dropped[6]}" in hook(
        name, "list", check=False
    )


def compiled(folder, source):
    """Returns a hook's object, compiled as docs/hooks.md describes."""
    name = re.search(r"uint64_t (\w+)\(", source)[1]
    (folder / f"{name}.c").write_text(source)
    made = folder / f"{name}.o"
    headers = ROOT / "dataplane" / "hook" / "include"
    run(["clang", "-O2", "-target", "bpf", "-I", headers, "-c", folder / f"{name}.c", "-o", made])
    return name, made


def test_hooks_of_the_guide_are_accepted_or_refused_as_it_says(stack, tmp_path):
    text = (ROOT / "docs" / "hooks.md").read_text()
    sources = [one for one in re.findall(r"```c\n(.*?)```", text, re.S) if "_HOOK uint64_t" in one]
    assert len(sources) == 2
    commands = [b"*2..$3..%s key" % command for command in (b"KEYS", b"GET")]
    expected = {"api_first": (b"POST /api/", b"GET /api/"), "get_first": commands}
    running, pid = start_server(stack, "epoll")
    for source in sources:
        name, made = compiled(tmp_path, source)
        others, urgent = expected[name]
        assert "loaded in 1 stack" in hook(running, "load", "mine", made)
        order = served_order(stack, pid, others, urgent)
        assert order == [urgent] * URGENT + [others] * OTHERS
        hook(running, "rm", "mine")
    broken = sources[-1].replace("p->head[8]", "p->head[p->payload_len]", 1)
    assert broken != sources[-1]
    refusal = "of what it sees, which has 0 to 79;\nbound the index first, e.g. by `& 63`"
    assert refusal in text
    _, made = compiled(tmp_path, broken)
    told = hook(running, "load", "mine", made, check=False)
    assert refusal.replace("\n", " ") in told


SUCCESSION = """\
#include <sy_hook_program.h>

SY_SEGMENT_HOOK uint64_t first(struct sy_hook_segment *s)
{
	s->become = sy_param[0];
	return SY_KEEP;
}
"""


def test_hook_can_name_its_successor(stack, tmp_path):
    """The first hook runs on the first segment of each connection; the other runs only on the
    rest."""
    name, _ = start_server(stack, "epoll")
    hook(name, "load", "later", "bytes", "--listen", "none")
    number = hook_list(name)[0]["later"]["number"]
    _, made = compiled(tmp_path, SUCCESSION)
    hook(name, "load", "first", made, "--param", f"0={number}")
    for connections in (1, 2):
        client = Client(stack["client"], b"line")
        for segment in (1, 2, 3):
            client.one.sendall(b"line\n")
            client.place()
            hooks, _ = hook_list(name)
            assert hooks["first"]["calls"] == connections
            assert hooks["later"]["calls"] == 2 * (connections - 1) + segment - 1
        client.close()


class Talk(threading.Thread):
    """A client that sends requests until stopped."""

    def __init__(self, host, label):
        super().__init__(daemon=True)
        self.client = Client(host, label)
        self.answered, self.stop, self.failed = 0, False, None

    def run(self):
        try:
            while not self.stop:
                self.client.one.sendall(self.client.label + b"\n")
                self.client.place()
                self.answered += 1
        except Exception as error:  # the test reports whatever error this is
            self.failed = error
        self.client.close()


def test_hooks_change_under_traffic(stack):
    """Loaded, replaced, configured and removed while clients send requests: each client receives
    all answers, and each program runs."""
    name, _ = start_server(stack, "epoll")
    talks = [Talk(stack["client"], label) for label in (b"urgent", b"others") * 4]
    for talk in talks:
        talk.start()

    def all_are_answered():
        """Waits until each client has received several answers to requests sent from now on."""
        before = [talk.answered for talk in talks]

        def more():
            assert not any(talk.failed for talk in talks), [talk.failed for talk in talks]
            return all(talk.answered > was + 2 for talk, was in zip(talks, before, strict=True))

        wait_until(more, "all clients have answers")

    for _ in range(2):
        for order in (
            ("load", "packets", "pattern", *PATTERN),
            ("load", "segments", "bytes"),
            ("set", "packets", "3=6", "4=1"),
            ("swap", "packets", "length", "--param", "1=6", "--param", "2=0"),
            ("swap", "segments", "requests"),
        ):
            calls = {one["name"]: one["calls"] for one in hook_list(name)[0].values()}
            hook(name, *order)
            all_are_answered()
            for one in hook_list(name)[0].values():
                assert one["calls"] > calls.get(one["name"], 0)
                assert one["wrong"] == 0
        hook(name, "rm", "segments")
        hook(name, "rm", "packets")
        all_are_answered()
    for talk in talks:
        talk.stop = True
    for talk in talks:
        talk.join()
        assert talk.failed is None


def test_hooks_from_the_start_are_loaded(stack):
    name, pid = start_server(
        stack, "epoll", "--hook", 'pattern,name=urgent,1="urgent\\n",2=18446744073709551360,4=6'
    )
    assert served_order(stack, pid) == SORTED
    hooks, _ = hook_list(name)
    assert hooks["urgent"]["params"][4] == 6


def test_invalid_hook_at_the_start_is_refused(stack):
    refused = ROOT / "build" / "dev" / "dataplane" / "hook" / "tests" / "loop.bpf.o"
    command = [STEELYARD, "run", "--interface", "front", "--hook", refused, "--", "true"]
    with pytest.raises(AssertionError, match="loop"):
        stack["forwarder"].ns.run(command)


# ---- redis ---------------------------------------------------------------------------------------


def redis(*words):
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words)


def redis_order(stack, pid):
    """Returns the order in which redis reports it served commands: arrival order, then with urgent
    ones first."""
    host = stack["client"]
    monitor = connect(host, V4, 8000)
    monitor.sendall(redis(b"MONITOR"))
    told = monitor.makefile("rb")
    assert told.readline() == b"+OK\r\n"
    scans = [connect(host, V4, 8000) for _ in range(OTHERS)]
    gets = [connect(host, V4, 8000) for _ in range(URGENT)]
    for one in (*scans, *gets):
        one.sendall(redis(b"PING"))
        assert one.recv(16) == b"+PONG\r\n"
    with stopped(pid, stack["forwarder"]) as send:
        for one in scans:
            send(one, redis(b"KEYS", b"*"))
        for one in gets:
            send(one, redis(b"GET", b"key"))
    order = []
    while len(order) < len(scans) + len(gets):
        command = told.readline().split(b'"')[1]
        if command in (b"KEYS", b"GET"):
            order.append(command)
    for one in (monitor, *scans, *gets):
        one.close()
    return order


def test_gets_of_redis_overtake_scans(stack):
    name = stack_name("redis")
    argv = ["redis-server", "--port", 8000, "--bind", V4, "--protected-mode", "no", "--save", ""]
    process = start_run(stack, "redis", [*argv, "--dir", stack.dir], "--name", name)
    process.wait_for("is worker 0 of 1")
    cli = ["redis-cli", "-h", V4, "-p", 8000]
    info = stack["client"].ns.run([*cli, "info", "server"])
    pid = int(re.search(r"process_id:(\d+)", info)[1])
    came = [b"KEYS"] * OTHERS + [b"GET"] * URGENT
    assert redis_order(stack, pid) == came
    hook(name, "load", "commands", "redis_command")
    assert redis_order(stack, pid) == [b"GET"] * URGENT + [b"KEYS"] * OTHERS
    levels = hook_list(name)[0]["commands"]["levels"]
    assert levels[6] >= OTHERS  # retransmitted segments count, too
    assert levels[0] >= URGENT
    hook(name, "rm", "commands")
    assert redis_order(stack, pid) == came


# ---- nginx ---------------------------------------------------------------------------------------

NGINX = nginx_text(
    """\
    log_format asked $request_uri;
    server {{
        listen 8000;
        location = /pid {{ return 200 "$pid"; }}
        location / {{ return 200 "here"; access_log {dir}/asked asked; }}
    }}
"""
)


class Reader:
    """A connection that stays open."""

    def __init__(self, host):
        self.one = connect(host, V4, 8000)
        self.file = self.one.makefile("rb")

    def answer(self):
        length = 0
        while line := self.file.readline().strip().lower():
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        return self.file.read(length)

    def close(self):
        self.file.close()
        self.one.close()


def get(path):
    return b"GET %s HTTP/1.1\r\nHost: nginx\r\n\r\n" % path


def nginx_order(stack, log):
    """Returns the order in which nginx logs requests: pages were requested first."""
    readers = [Reader(stack["client"]) for _ in range(OTHERS + URGENT)]
    before = len(log.read_text().split())
    for reader in readers:
        reader.one.sendall(get(b"/pid"))
        pid = int(reader.answer())
    with stopped(pid, stack["forwarder"]) as send:
        for at, reader in enumerate(readers):
            send(reader.one, get(b"/page" if at < OTHERS else b"/api/price"))
    for reader in readers:
        assert reader.answer() == b"here"
        reader.close()
    # nginx logs after it has answered.
    wait_until(lambda: len(log.read_text().split()) >= before + len(readers), "all are logged")
    return log.read_text().split()[-len(readers) :]


def test_nginx_api_requests_overtake_pages(stack):
    folder = stack.dir / "api"
    folder.mkdir()
    (folder / "conf").write_text(NGINX.format(dir=folder))
    name = stack_name("nginx")
    process = start_run(stack, "nginx", ["nginx", "-c", folder / "conf"], "--name", name)
    process.wait_for("is worker 0 of 1")
    came = ["/page"] * OTHERS + ["/api/price"] * URGENT
    assert nginx_order(stack, folder / "asked") == came
    api = ("--param", '0="/api/"', "--param", "1=5")
    hook(name, "load", "api", "http_path", *api, "--param", "3=6")
    assert nginx_order(stack, folder / "asked") == ["/api/price"] * URGENT + ["/page"] * OTHERS
    # The reverse: pages first.
    hook(name, "set", "api", "2=6", "3=1")
    assert nginx_order(stack, folder / "asked") == came
    hook(name, "rm", "api")
    assert nginx_order(stack, folder / "asked") == came


# ---- rights --------------------------------------------------------------------------------------


def test_socket_belongs_to_root_and_ends_with_the_program(stack):
    name, pid = start_server(stack, "epoll")
    path = Path("/run/steelyard/stack") / f"{name}.sock"
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.stat().st_uid == 0
    unprivileged = ["setpriv", "--reuid", "65534", "--clear-groups", STEELYARD, "hook", "list"]
    done = subprocess.run(
        [*map(str, unprivileged), "--stack", name], capture_output=True, text=True, check=False
    )
    assert "permission denied" in done.stderr
    assert name in run_steelyard("hook", "list")
    os.kill(pid, signal.SIGTERM)
    wait_until(lambda: not path.exists(), "its socket is gone")
    assert "no stack" in hook(name, "list", check=False)
