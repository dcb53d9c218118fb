# SPDX-License-Identifier: Apache-2.0
"""The host stalls repeatedly during operations with timeouts: none fails."""

import json
import sys
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.hooks import hook, hook_list, stack_name
from tests.lab.run import start_run
from tests.lab.stall import stalling
from tests.lab.wait import DEADLINE_S
from tests.wire.conftest import check_accounting
from tests.wire.conversations import Conversations
from tests.wire.replacement import SOURCES, WAYS, adoption, replace_forwarder

ORDER = Path(__file__).with_name("order.py")


@pytest.fixture
def stage(unchecked_stage, request):
    yield from check_accounting(unchecked_stage, request)


@pytest.mark.parametrize("way", WAYS)
def test_sessions_survive_stalls_during_replacement(stage, way):
    """A kill, a stop and an upgrade. Each of their phases has its timeout."""
    with Conversations(stage) as talk:
        with stalling():
            replace_forwarder(stage.steelyard, way)
            stage.steelyard.wait_in_sync()
        talk.check_servers()
        found = adoption(stage)
        assert (found["source"], found["refused"]) == (SOURCES[way], "")
        assert found["results"].pop("kept") >= len(talk)
        assert not any(found["results"].values()), found


def test_hooks_reach_their_stacks_despite_stalls():
    with Lab(arms=1, servers=0) as lab:
        name = stack_name("stall")
        program = start_run(lab, "stall", [sys.executable, ORDER, 8005, "epoll"], "--name", name)
        program.wait_for("is worker 0 of 1")
        pattern = ("pattern", "--param", '1="urgent\\n"', "--param", f"2={1 << 63}")
        with stalling():
            for n in range(2):
                assert "loaded in 1 stack" in hook(name, "load", f"hook-{n}", *pattern)
                hook(name, "set", f"hook-{n}", "3=6")
                assert len(hook_list(name)[0]) == 1
                hook(name, "rm", f"hook-{n}")
        assert hook_list(name) == ({}, 1)


def test_health_excludes_stalled_time(stage):
    """The forwarder has 0.8 s to answer, and a worker a second to run, of the agent's own time."""
    with stalling(stop_s=1.2, run_s=0.03):
        for _ in range(10):
            answer = stage.steelyard.cli("health", "--timeout", "60s", "-o", "json", check=False)
            assert (answer.returncode, json.loads(answer.stdout)["level"]) == (0, "ok"), answer


LARGE = 16 << 20
SENDS_AND_ENDS = f"""\
import socket
listener = socket.create_server(("0.0.0.0", 8006))
print("listens", flush=True)
one, _ = listener.accept()
one.sendall(bytes({LARGE}))
"""
READS_SLOWLY = """\
import socket, sys, time
one = socket.create_connection((sys.argv[1], 8006))
size = 0
while data := one.recv(1 << 16):
    size += len(data)
    time.sleep(0.005)
print("read", size, flush=True)
"""


def test_bytes_of_an_exited_program_arrive_despite_stalls():
    """The stack waits a second, of the program's own time, for a peer that reads nothing."""
    with Lab(arms=1, servers=0) as lab:
        server = start_run(lab, "sender", [sys.executable, "-c", SENDS_AND_ENDS])
        server.wait_for("listens")
        argv = [sys.executable, "-c", READS_SLOWLY, lab["forwarder"].v4]
        reader = lab.start("client", "reader", argv)
        with stalling(run_s=0.3):
            assert reader.wait(DEADLINE_S) == 0, reader.output()
        assert f"read {LARGE}" in reader.output()
