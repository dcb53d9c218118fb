# SPDX-License-Identifier: Apache-2.0
"""`steelyard stack`: what programs on the stack have, and what they have lost; and a veth whose
checksums are unfinished."""

import contextlib
import os
import re
import signal

from tests.lab import wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.hooks import stack_name
from tests.lab.process import run
from tests.lab.stacks import connections, listed, unfinished_checksums
from tests.lab.steelyard import STEELYARD
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

NGINX = """\
worker_processes 2;
daemon off;
user www-data;
pid {dir}/pid;
error_log stderr notice;
events {{ }}
http {{ access_log off; server {{ listen 8002; listen [::]:8002; root {dir}; }} }}
"""


@sanitized
@families
def test_unfinished_checksums_on_a_veth(stack, family):
    """Nobody has to know of them."""
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
def test_what_a_program_has(stack):
    """Two workers: connections, their bytes, and counters by worker."""
    folder = site(stack, "stacks", NGINX)
    name = stack_name("has")
    start(stack, name, ["nginx", "-c", folder / "conf"], 8002, "--name", name, workers=2)
    with contextlib.ExitStack() as opened:
        for _ in range(8):
            one = opened.enter_context(connect(stack["client"], V4, 8002))
            one.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            answer = receive_exactly(one, 5)
            while not answer.endswith(b"hello"):
                answer += one.recv(4096)
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
        assert one["local"] == f"{V4}:8002" and one["received"] == 27 and one["sent"] > 100
        assert one["pid"] in workers and one["unread"] == one["unsent"] == 0
    assert {one["local"] for one in listeners} == {"0.0.0.0:8002", "*:8002"}
    wait_until(lambda: not connections(name, "established"), "all have closed")


def test_a_program_whose_keeper_was_killed(stack):
    """It goes on, and `steelyard stack list` names it."""
    folder = site(stack, "orphan", LIGHTTPD)
    process = start(stack, "orphan", ["lighttpd", "-D", "-f", folder / "conf"], 8001)
    pid = re.search(r"pid (\d+) is worker", process.output())[1]
    assert pid not in run([STEELYARD, "stack", "list"], check=False).stderr
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert http_get(stack["client"], V4, 8001, "/index.html") == b"hello"
    (warning,) = re.findall(".*was killed.*", run([STEELYARD, "stack", "list"], check=False).stderr)
    assert re.search(rf"kill .*\b{pid}\b", warning)
