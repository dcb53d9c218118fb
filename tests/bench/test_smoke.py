# SPDX-License-Identifier: Apache-2.0
"""Each benchmark's smallest cell still runs."""

import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import machine, run_sync


@pytest.mark.parametrize("name", bench.names())
def test_smallest_cell_runs(name):
    command = [sys.executable, "-m", "bench", "--smoke", name]
    done = subprocess.run(
        command, cwd=machine.ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_run_without_a_connection_goes_on_until_one_is_counted():
    """On a busy core a short run may end before anything happened; its counts are divisors."""
    for measure in "packets", "bytes":
        options = ("--rate", 100, "--run", 1, "--warm", 1, "--runs", 2)
        assert list(run_sync.cell(measure, *options, sessions=1000, table=100_000, huge=False))
