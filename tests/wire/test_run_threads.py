# SPDX-License-Identifier: Apache-2.0
"""Threads of one process on the user-space stack: each is woken by its event, a cancelled one
leaves nothing locked, and handlers use sockets wherever they interrupt."""

import pytest

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.run import PORT, Puppet, run_command
from tests.wire.running import V4, sanitized

WAITS = ROOT / "build/dev/tests/waits/steelyard-waits"
SAID = [
    "kinds",
    "beside idle ones",
    "pool",
    "accept",
    "ends",
    "computes",
    "cancels",
    "handlers",
    "jumps",
]


CANCELLED = {"beside idle ones", "cancels"}


def waits(stack, command, on):
    puppet = Puppet(stack["client"], stack["client"].v4)
    argv = run_command(command) if on == "stack" else command
    try:
        said = run(stack["forwarder"].ns.command(argv), deadline_s=100)
    finally:
        puppet.close()
    return [line for line in said.splitlines() if line in SAID]


@pytest.mark.parametrize("on", ("linux", "stack"))
def test_no_thread_misses_its_event(stack, on):
    """No call of the program has a time-out: a lost wake-up would end this test by its deadline.
    The same on Linux's sockets says that the program asks for nothing else."""
    assert waits(stack, [WAITS, stack["client"].v4, PORT, V4], on) == SAID


@sanitized
def test_waiting_threads_use_memory_well(stack):
    """AddressSanitizer takes the frames that a cancelled thread has left for live ones."""
    command = [WAITS, stack["client"].v4, PORT, V4, "uncancelled"]
    assert waits(stack, command, "stack") == [line for line in SAID if line not in CANCELLED]
