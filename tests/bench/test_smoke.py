# SPDX-License-Identifier: Apache-2.0
"""Each benchmark's smallest cell: so that none rots between two times that it is needed."""

import subprocess
import sys

import pytest

from bench import __main__ as bench
from bench import machine


@pytest.mark.parametrize("name", bench.names())
def test_smoke(name):
    command = [sys.executable, "-m", "bench", "--smoke", name]
    done = subprocess.run(
        command, cwd=machine.ROOT, capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
