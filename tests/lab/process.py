# SPDX-License-Identifier: Apache-2.0
"""Runs programs: short ones to their end, long ones with a log that tests can wait for."""

import copy
import ctypes
import os
import re
import signal
import subprocess
import time
from pathlib import Path

from tests.lab.wait import DEADLINE_S, Expired, wait_until

PR_SET_CHILD_SUBREAPER = 36


class CommandFailed(AssertionError):
    """A program did not end as expected; the text contains its output."""


def run(argv, check=True, deadline_s=DEADLINE_S, stdin=None, env=None):
    """Runs argv to its end. Returns standard output, or with check=False the CompletedProcess."""
    argv = [str(word) for word in argv]
    done = subprocess.run(
        argv,
        input=stdin,
        text=True,
        errors="replace",
        capture_output=True,
        timeout=deadline_s,
        check=False,
        env={**os.environ, **env} if env else None,
    )
    return checked(done) if check else done


def checked(done):
    """Returns the standard output of a CompletedProcess; raises CommandFailed if it failed."""
    if done.returncode:
        raise CommandFailed(
            f"{' '.join(done.args)}: exit status {done.returncode}\n{done.stdout}{done.stderr}"
        )
    return done.stdout


class Process:
    """A program that runs until stopped. Its output goes to `log`.

    It is killed with this process unless outlive is set (a lab that keeps running on purpose).
    Start it from the main thread: the kernel kills it when the thread that started it ends. With
    commanded, write_line() writes lines to its standard input."""

    def __init__(self, name, argv, log, env=None, outlive=False, commanded=False):
        self.name = name
        self.argv = [str(word) for word in argv]
        bound = [] if outlive else ["setpriv", "--pdeathsig", "KILL", "--"]
        self.log = Path(log)
        self.log.parent.mkdir(parents=True, exist_ok=True)
        self.mark = self.log.stat().st_size if self.log.exists() else 0
        with open(self.log, "ab") as output:
            self.child = subprocess.Popen(
                bound + self.argv,
                stdin=subprocess.PIPE if commanded else subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
                env={**os.environ, **env} if env else None,
            )

    @property
    def pid(self):
        return self.child.pid

    def alive(self):
        return self.child.poll() is None

    def output(self):
        """Returns its output since the start."""
        with open(self.log, errors="replace") as text:
            text.seek(self.mark)
            return text.read()

    def wait_for(self, pattern, deadline_s=DEADLINE_S):
        """Waits for a line that matches; fails at once if the program ends first."""

        def seen():
            ended = not self.alive()
            match = re.search(pattern, self.output(), re.M)
            if ended and not match:
                raise CommandFailed(f"{self.describe()} ended without saying /{pattern}/")
            return match

        return wait_until(seen, f"{self.name} says /{pattern}/ ({self.log})", deadline_s)

    def wait(self, deadline_s=DEADLINE_S):
        """Waits until it ends; returns the exit status, negative for a signal."""
        try:
            return self.child.wait(deadline_s)
        except subprocess.TimeoutExpired as error:
            raise CommandFailed(f"{self.name} does not end\n{self.output()[-3000:]}") from error

    def write_line(self, line):
        self.child.stdin.write(line.encode() + b"\n")
        self.child.stdin.flush()

    def send(self, number):
        if self.alive():
            self.child.send_signal(number)

    def stop(self, number=signal.SIGTERM, deadline_s=DEADLINE_S):
        """Sends a signal, by default SIGTERM; returns the exit status."""
        self.send(number)
        return self.wait(deadline_s)

    def kill(self):
        return self.stop(signal.SIGKILL)

    def prefer(self, nice):
        """Gives it a larger (nice < 0) or smaller share of its core. A session may be a scheduling
        group, within which priorities count (sched(7))."""
        os.setpriority(os.PRIO_PROCESS, self.pid, nice)
        group = Path(f"/proc/{self.pid}/autogroup")
        if group.exists():
            group.write_text(str(nice))

    def cpu_seconds(self):
        """Returns the processor time used so far."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def idle_cost(self, jiffies=300):
        """Returns the percentage of a core that it uses during `jiffies` ticks of the system
        clock."""
        start, used = time.monotonic(), self.cpu_seconds()
        end = start + jiffies / os.sysconf("SC_CLK_TCK")
        wait_until(lambda: time.monotonic() >= end, "the measurement is over")
        return 100 * (self.cpu_seconds() - used) / (time.monotonic() - start)

    def successor(self, pid):
        """Returns the process that replaces this one, once this one has ended."""
        self.wait()
        successor = copy.copy(self)
        successor.child = Orphan(pid)
        return successor

    def describe(self):
        status = self.child.poll()
        state = "running" if status is None else f"exit status {status}"
        return f"{self.name} ({' '.join(self.argv)}; {state})\n{self.output()[-6000:]}"


def adopt_orphans():
    """Makes orphaned processes children of this one, so that it can wait for them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Orphan:
    """Like subprocess.Popen, for a process adopted through adopt_orphans()."""

    def __init__(self, pid):
        self.pid, self.status = pid, None

    def poll(self):
        if self.status is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        return self.status

    def wait(self, deadline_s):
        try:
            wait_until(lambda: self.poll() is not None, "its end", deadline_s)
        except Expired as error:
            raise subprocess.TimeoutExpired(str(self.pid), deadline_s) from error
        return self.status

    def send_signal(self, number):
        os.kill(self.pid, number)
