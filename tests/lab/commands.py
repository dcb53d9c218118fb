# SPDX-License-Identifier: Apache-2.0
"""Runs `steelyard` commands without the start of a process for each (tests/commands)."""

import contextlib
import json
import select
import subprocess
import threading

from tests.lab.lab import ROOT
from tests.lab.process import CommandFailed, checked
from tests.lab.wait import DEADLINE_S

COMMANDS = ROOT / "build/bin/commands"


class Runner:
    """A process that runs commands, one after another, until this process ends."""

    def __init__(self):
        self.child = subprocess.Popen(
            [COMMANDS],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,  # Ctrl-C is for this process
        )

    def run(self, words, stdin, deadline_s):
        """Returns the CompletedProcess of a command."""
        argv = ["steelyard", *words]
        line = json.dumps({"args": words, "stdin": stdin or ""})
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()
        if not select.select([self.child.stdout], [], [], deadline_s)[0]:
            raise subprocess.TimeoutExpired(argv, deadline_s)
        answer = self.child.stdout.readline()
        if not answer:
            raise CommandFailed(f"{' '.join(argv)}: exit status {self.child.wait()}")
        done = json.loads(answer)
        return subprocess.CompletedProcess(argv, done["code"], done["stdout"], done["stderr"])

    def close(self):
        self.child.kill()
        self.child.wait()
        self.child.stdin.close()
        self.child.stdout.close()


_idle = []
_lock = threading.Lock()


def run_steelyard(*words, check=True, deadline_s=DEADLINE_S, stdin=None):
    """Like process.run(), for a `steelyard` command that ends and is not `run`."""
    words = [str(word) for word in words]
    with _lock:
        runner = _idle.pop() if _idle else Runner()
    with contextlib.ExitStack() as broken:
        broken.callback(runner.close)
        done = runner.run(words, stdin, deadline_s)
        broken.pop_all()
    with _lock:
        _idle.append(runner)
    return checked(done) if check else done
