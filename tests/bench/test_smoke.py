# SPDX-License-Identifier: Apache-2.0
"""Each benchmark's smallest cell still runs."""

import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import machine


@pytest.mark.parametrize("name", bench.names())
def test_smallest_cell_runs(name):
    command = [sys.executable, "-m", "bench", "--smoke", name]
    done = subprocess.run(
        command, cwd=machine.ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
