# SPDX-License-Identifier: Apache-2.0
"""`steelyard stack`: connections, counters and losses of programs on the stack; and a veth with
unfinished checksums."""

import contextlib
import os
import re
import signal

import pytest
from scapy.layers.inet import IP, TCP
from scapy.layers.l2 import Ether

from tests.lab import wait_until
from tests.lab.clients import connect, http_get
from tests.lab.commands import run_steelyard
from tests.lab.hooks import stack_name, stopped
from tests.lab.run import nginx_text, run_command
from tests.lab.stacks import connections, listed, unfinished_checksums
from tests.wire.running import (
    LIGHTTPD,
    V4,
    V6,
    digest,
    families,
    sanitized,
    site,
    start,
)

INSIDE = "    server {{ listen 8002; listen [::]:8002; root {dir}; }}"
PAGE = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@sanitized
@families
def test_unfinished_checksums_on_a_veth_are_accepted(stack, family):
    """Without any configuration."""
    folder = site(stack, "unfinished", LIGHTTPD)
    name, address = stack_name(f"unfinished-{family}"), (V4, V6)[family == 6]
    start(stack, name, ["lighttpd", "-D", "-f", folder / "conf"], 8001, "--name", name)
    with unfinished_checksums(stack):
        body = http_get(stack["client"], address, 8001, "/large", timeout_s=60)
    counts = listed(name)["counts"]
    assert digest(body) == digest((folder / "large").read_bytes())
    assert counts["unfinished"] > 10
    assert counts["bad_checksums"] == 0


@sanitized
def test_list_shows_connections_and_counters(stack):
    """Two workers: connections, their bytes, and counters by worker."""
    folder = site(stack, "stacks", nginx_text(INSIDE, workers=2))
    name = stack_name("has")
    start(stack, name, ["nginx", "-c", folder / "conf"], 8002, "--name", name, workers=2)
    with contextlib.ExitStack() as opened:
        for _ in range(8):
            one = opened.enter_context(connect(stack["client"], V4, 8002))
            one.sendall(PAGE)
            with one.makefile("rb") as answer:
                while answer.readline().strip():
                    pass
                assert answer.read(5) == b"hello"
        view = listed(name)
        seen = connections(name, "established")
        listeners = connections(name, "listen")
        few = connections(name, None, "--limit", "3")
    assert (view["program"], view["interfaces"], view["stacks"]) == ("nginx", "front", 2)
    assert view["counts"]["accepted"] == view["counts"]["connections"] == 8
    assert view["counts"]["packets_in"] >= 24 and view["counts"]["bytes_in"] > 24 * 54
    assert view["counts"]["bytes_out"] > view["counts"]["packets_out"] * 54
    workers = {one["pid"] for one in view["each"]}
    assert len(workers) == 2 and {one["pid"] for one in listeners} == workers
    assert sum(one["counts"]["accepted"] for one in view["each"]) == 8
    assert len(seen) == 8 and len(few) == 3
    for one in seen:
        assert one["local"] == f"{V4}:8002" and one["received"] == len(PAGE) and one["sent"] > 100
        assert one["pid"] in workers and one["unread"] == one["unsent"] == 0
    assert {one["local"] for one in listeners} == {"0.0.0.0:8002", "[::]:8002"}
    wait_until(lambda: not connections(name, "established"), "all have closed")
    series = rf'steelyard_stack_accepted_total{{number="\d+",stack="{name}"}} (\d+)'
    accepted = re.findall(series, run_steelyard("stack", "metrics"))
    assert len(accepted) == 2 and sum(map(int, accepted)) == 8


def test_full_ring_is_counted(stack):
    """A stopped program reads nothing; its two rings hold 256 each. After a second, new connections
    would go to Linux: these segments belong to none."""
    folder, name = site(stack, "missed", LIGHTTPD), stack_name("missed")
    argv = ["lighttpd", "-D", "-f", folder / "conf"]
    process = start(stack, name, argv, 8001, "--name", name, "--ring", "256")
    pid = int(re.search(r"pid (\d+) is worker", process.output())[1])
    assert listed(name)["missed"] == 0
    capture, mine, theirs = (
        stack.capture("client"),
        stack["client"].ns.mac("eth0"),
        stack["forwarder"].ns.mac("front"),
    )
    ether, ip = Ether(src=mine, dst=theirs), IP(src=stack["client"].v4, dst=V4)
    with stopped(pid, stack["forwarder"]):
        for sport in range(6000, 6600):
            capture.send(ether / ip / TCP(sport=sport, dport=8001, flags="A", seq=1, ack=1))
    wait_until(lambda: listed(name)["missed"] >= 600 - 2 * 256, "what was missed is counted")
    told = run_steelyard("stack", "list", "--stack", name, check=False)
    assert "a larger ring" in told.stderr and http_get(stack["client"], V4, 8001, "/index.html")


@pytest.mark.parametrize("processes", (1, 2))
def test_unequal_workers_and_processes_are_reported(stack, processes):
    """Fewer processes than --workers, and more."""
    folder, name = site(stack, "fit", nginx_text(INSIDE, workers=processes)), stack_name("fit")
    options = ("--name", name)
    argv = run_command(["nginx", "-c", folder / "conf"], *options, workers=3 - processes)
    stack.start("forwarder", name, argv)
    said = {1: "1 of 2 workers", 2: "1 more of its processes wait for a queue"}[processes]
    told = ["stack", "list", "--stack", name]
    wait_until(lambda: said in run_steelyard(*told, check=False).stderr, "the list warns")


def killed():
    """Returns the processes that `steelyard stack list` reports as without `steelyard run`, of all
    tests."""
    warnings = run_steelyard("stack", "list", check=False).stderr
    return re.findall(r"\d+", "".join(re.findall("was killed.*remedy: kill ([0-9 ]*)", warnings)))


def test_program_with_a_killed_supervisor_is_reported(stack):
    """It continues, and `steelyard stack list` names it."""
    folder = site(stack, "orphan", LIGHTTPD)
    process = start(stack, "orphan", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    pid = re.search(r"pid (\d+) is worker", process.output())[1]
    assert pid not in killed()
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"
    assert pid in killed()
