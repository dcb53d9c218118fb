# SPDX-License-Identifier: Apache-2.0
"""Hooks of a program with several processes: all of its stacks have the same hooks at all times."""

import os
import signal

import pytest

from tests.lab import wait_until
from tests.lab.hooks import hook, hook_list, stack_name
from tests.lab.lab import ROOT, Lab
from tests.lab.run import nginx_text, start_run
from tests.wire.running import workers_seen

V4 = "10.0.0.1"
NGINX = nginx_text(
    """\
    server {{
        listen 8002;
        location = /pid {{ return 200 "$pid"; }}
    }}
""",
    workers=2,
)

# Programs that would stop a server or read foreign memory, and the error that the operator gets.
REFUSED = {
    "loop": "a hook must not loop",
    "longest": "the maximum is 4096",
    "ways": "too many paths",
    "beyond": "of what it sees, which has 0 to",
    "pointer": "uses a number as an address",
}


@pytest.fixture(scope="module")
def lab():
    with Lab(arms=1, servers=0, queues=2) as lab:
        yield lab


def test_all_workers_of_nginx_have_the_same_hooks(lab):
    folder = lab.dir / "hooks"
    folder.mkdir(exist_ok=True)
    (folder / "conf").write_text(NGINX.format(dir=folder))
    name = stack_name("nginx")
    argv = ["nginx", "-c", folder / "conf"]
    process = start_run(lab, "nginx", argv, "--name", name, workers=2)
    for worker in range(2):
        process.wait_for(rf"is worker {worker} of 2")
    first = workers_seen(lab, 2)
    said = hook(name, "load", "api", "http_path", "--param", '0="/pid"', "--param", "1=4")
    assert "loaded in 2 stacks" in said
    before = hook_list(name)[0]["api"]["calls"]
    workers_seen(lab, 2)
    hooks, stacks = hook_list(name)
    assert (stacks, hooks["api"]["stacks"]) == (2, 2)
    assert hooks["api"]["calls"] > before
    assert hooks["api"]["levels"][0] >= 2
    assert hooks["api"]["timed"] > 0
    assert hooks["api"]["cycles_per_call"] > 0
    # A worker that nginx starts now has the hook.
    os.kill(min(first), signal.SIGKILL)
    wait_until(lambda: process.output().count("is worker") == 3, "a new worker has the queue")
    workers_seen(lab, 2)
    hooks, stacks = hook_list(name)
    assert (stacks, hooks["api"]["stacks"]) == (2, 2)
    assert hooks["api"]["params"][1] == 4
    # A replacement for all of them; its counters continue. Refused programs and programs of another
    # kind change nothing.
    assert "swapped in 2 stacks" in hook(name, "swap", "api", "length")
    assert hook_list(name)[0]["api"]["loads"] == 2
    tests = ROOT / "build" / "dev" / "dataplane" / "hook" / "tests"
    for refused, why in REFUSED.items():
        assert why in hook(name, "swap", "api", tests / f"{refused}.bpf.o", check=False)
    assert "this is a segment hook" in hook(name, "swap", "api", "bytes", check=False)
    assert "swap it" in hook(name, "load", "api", "length", check=False)
    assert hook_list(name)[0]["api"]["loads"] == 2
    workers_seen(lab, 2)
    assert "removed in 2 stacks" in hook(name, "rm", "api")
    assert "no hook api" in hook(name, "rm", "api", check=False)
    workers_seen(lab, 2)
