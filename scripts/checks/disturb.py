# SPDX-License-Identifier: Apache-2.0
"""Disturbs a test run on purpose: make test DISTURB="load stalls".

load: two programs compute all the time in parallel to the tests. stalls: every few seconds all
processes of the run stop for 300 ms, as when the host of a virtual machine runs another one."""

import contextlib
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

KINDS = ("load", "stalls")
STALL_S = 0.3
PAUSE_S = (2, 6)  # between stalls, at random
STOPPER = """
import sys
sys.path.insert(0, sys.argv[1])
from checks import disturb
disturb.stop_at_random(int(sys.argv[2]))
"""


def descendants(root, but=()):
    """Returns root and the processes below it, parents first."""
    children = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, queue = [], [root]
    while queue:
        one = queue.pop(0)
        if one not in but:
            found.append(one)
            queue += children.get(one, [])
    return found


def signal_all(processes, number):
    for one in processes:
        with contextlib.suppress(ProcessLookupError):
            os.kill(one, number)


def stop_for(processes, seconds):
    """Stops processes, and continues them."""
    try:
        signal_all(processes, signal.SIGSTOP)
        time.sleep(seconds)
    finally:
        signal_all(processes, signal.SIGCONT)


def stop_at_random(root):
    """Stops and continues root and all its descendants until root exits. Runs in a process of its
    own, which it leaves out. Includes what a lab started in sessions of its own."""
    me = os.getpid()
    while Path(f"/proc/{root}").exists() and os.getppid() != 1:
        time.sleep(random.uniform(*PAUSE_S))
        stop_for(descendants(root, (me,)), STALL_S)


@contextlib.contextmanager
def disturbed(kinds):
    """Disturbs this process and its children within the block."""
    unknown = set(kinds) - set(KINDS)
    if unknown:
        raise SystemExit(f"check: no disturbance {' '.join(unknown)}; there are {' '.join(KINDS)}")
    started = []
    if "load" in kinds:
        program = shutil.which("stress-ng")
        if not program:
            raise SystemExit("check: DISTURB=load needs stress-ng: apt-get install stress-ng")
        command = [program, "--quiet", "--cpu", "2", "--timeout", "0"]
        started.append(subprocess.Popen(command, start_new_session=True))
    if "stalls" in kinds:
        scripts = str(Path(__file__).resolve().parents[1])
        command = [sys.executable, "-c", STOPPER, scripts, str(os.getpid())]
        started.append(subprocess.Popen(command, start_new_session=True))
    try:
        yield
    finally:
        for one in started:
            signal_all(descendants(one.pid), signal.SIGTERM)
            one.wait()
