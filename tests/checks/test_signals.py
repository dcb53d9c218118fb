# SPDX-License-Identifier: Apache-2.0
"""A signal that ends a run of traffic tests ends all of its processes, after the fixtures'
clean-up."""

import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TESTS = """
import os, pathlib, signal
import pytest

@pytest.fixture
def place():
    yield pathlib.Path(os.environ["PLACE"])
    (pathlib.Path(os.environ["PLACE"]) / "cleaned").touch()

def test_that_is_ended(place):
    os.kill(os.getpid(), int(os.environ["NUMBER"]))

def test_that_does_not_begin():
    (pathlib.Path(os.environ["PLACE"]) / "begun").touch()
"""


@pytest.mark.parametrize("number", (signal.SIGTERM, signal.SIGHUP))
def test_signal_ends_the_whole_run(tmp_path, number):
    (tmp_path / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.wire.conftest"]
    command += ["--rootdir", tmp_path, "-o", "pythonpath=", tmp_path]
    env = {
        "PYTHONPATH": f"{ROOT}:{ROOT}/scripts",
        "PLACE": str(tmp_path),
        "NUMBER": str(int(number)),
    }
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 128 + number, done.stdout + done.stderr
    assert (tmp_path / "cleaned").exists()
    assert not (tmp_path / "begun").exists()
