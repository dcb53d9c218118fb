# SPDX-License-Identifier: Apache-2.0
"""Shared by all checks: running commands, counting results."""

import dataclasses
import os
import subprocess
import tempfile
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "build/results"
VENV = ROOT / ".venv/bin"
SCRATCH = ROOT / "build/tmp"  # for large files: /tmp may be small


@dataclasses.dataclass
class Failure:
    """A failed test that can run again: its name, its messages, and a function that runs it."""

    test: str
    notes: list
    again: Callable


class Count:
    """Results of a suite. `notes` are printed below its headline, `cases` are (seconds, name) of
    tests, `failures` may run again (alone.py)."""

    def __init__(self, passed=0, failed=0, skipped=0, notes=(), cases=(), failures=()):
        self.passed, self.failed, self.skipped = passed, failed, skipped
        self.notes, self.cases, self.failures = list(notes), list(cases), list(failures)

    def __iadd__(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped
        self.notes += other.notes
        self.cases += other.cases
        self.failures += other.failures
        return self


used = threading.local()  # .processor_s: processor time of this thread's commands


# The command is in its own session, so Ctrl-C does not reach it; it is killed when the starting
# thread ends. A session may be a scheduling group (sched(7)), so the group's weight is lowered too.
YIELDING = (
    'echo 19 2>/dev/null >/proc/self/autogroup; exec setpriv --pdeathsig KILL -- nice -n 19 "$@"'
)


def run(*command, env=None, yielding=False):
    """Runs a command with additional environment variables; captures and returns its output.
    yielding: it only uses otherwise idle cores."""
    if yielding:
        command = ("sh", "-c", YIELDING, "sh", *command)
    with tempfile.TemporaryFile() as output:
        child = subprocess.Popen(
            [str(c) for c in command],
            start_new_session=yielding,
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **(env or {})},
        )
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        used.processor_s = getattr(used, "processor_s", 0) + usage.ru_utime + usage.ru_stime
        output.seek(0)
        text = output.read().decode(errors="replace")
    return subprocess.CompletedProcess(command, child.returncode, text)


def parallel(calls):
    """Runs functions in parallel, one per core; returns their results in order."""

    def one(call):
        used.processor_s = 0
        return call(), used.processor_s

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        done = list(pool.map(one, calls))
    used.processor_s = getattr(used, "processor_s", 0) + sum(took for _, took in done)
    return [result for result, _ in done]


def tracked(*patterns):
    """Returns the files of the working tree that git tracks or would track."""
    out = run(
        "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *patterns
    ).stdout
    return sorted(f for f in set(out.split("\0")) if f and (ROOT / f).is_file())


def check_of(process, what):
    """Returns one passed or failed check, from a command's exit status."""
    count = Count(passed=1) if process.returncode == 0 else Count(failed=1)
    if count.failed:
        count.notes.append(f"{what}:\n{process.stdout.rstrip()}")
    return count


def complaints(found, what):
    """Returns one check, which fails if anything was found."""
    if not found:
        return Count(passed=1)
    count = Count(failed=1)
    count.notes.append(what + ":\n" + "\n".join(found))
    return count
