# SPDX-License-Identifier: Apache-2.0
"""Threads of one process on the user-space stack: each is woken by its event, a cancelled one
leaves nothing locked, and handlers use sockets wherever they interrupt."""

import pytest

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.run import PORT, Puppet, run_command
from tests.wire.running import V4, sanitized

WAITS = ROOT / "build/dev/tests/waits/steelyard-waits"
SAID = ["kinds", "beside idle ones", "pool", "accept", "ends", "cancels", "handlers", "jumps"]


@sanitized
@pytest.mark.parametrize("side", ("linux", "stack"))
def test_no_thread_misses_its_event(stack, side):
    """No call of the program has a time-out: a lost wake-up would end this test by its deadline.
    The same on Linux's sockets says that the program asks for nothing else."""
    command = [WAITS, stack["client"].v4, PORT, V4]
    puppet = Puppet(stack["client"], stack["client"].v4)
    try:
        argv = run_command(command) if side == "stack" else command
        said = run(stack["forwarder"].ns.command(argv), deadline_s=100)
    finally:
        puppet.close()
    lines = [line for line in said.splitlines() if line in SAID]
    assert lines == SAID, said
