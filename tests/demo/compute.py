# SPDX-License-Identifier: Apache-2.0
"""Servers with little processor time, by control groups, and their use of it.

Each server has a tenth of a core; a computing program can run beside it."""

import contextlib
import subprocess
import time
from pathlib import Path

PERIOD_US, QUOTA_US = 20_000, 2_000
ROOT = Path("/sys/fs/cgroup")
OVER_S = 0.5  # the use is that of the last half second, at least


class Machine:
    """The control groups of one host's processes."""

    def __init__(self, lab, host):
        self.host, self.burner = host, None
        self.v1 = (ROOT / "cpu/cpu.cfs_quota_us").exists()
        kinds = ("cpu", "cpuacct") if self.v1 else ("",)
        self.groups = [ROOT / kind / f"{lab.id}-{host}" for kind in kinds]
        self.samples = []  # (time, seconds used)
        for group in self.groups:
            group.mkdir(exist_ok=True)
        if self.v1:
            (self.groups[0] / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (self.groups[0] / "cpu.cfs_quota_us").write_text(str(QUOTA_US))
        else:
            (self.groups[0] / "cpu.max").write_text(f"{QUOTA_US} {PERIOD_US}")

    def put(self, pid):
        for group in self.groups:
            (group / "cgroup.procs").write_text(str(pid))

    def used(self):
        """Seconds of processor time so far."""
        if self.v1:
            return int((self.groups[1] / "cpuacct.usage").read_text()) / 1e9
        words = (self.groups[0] / "cpu.stat").read_text().split()
        return int(words[words.index("usage_usec") + 1]) / 1e6

    def use(self):
        """Returns the recently used share of the machine, 0 to 1."""
        self.samples.append((time.monotonic(), self.used()))
        while len(self.samples) > 2 and self.samples[-1][0] - self.samples[1][0] >= OVER_S:
            self.samples.pop(0)
        (began, before), (now, after) = self.samples[0], self.samples[-1]
        whole = (now - began) * QUOTA_US / PERIOD_US
        return min(1.0, (after - before) / whole) if whole else 0.0

    def burn(self):
        """Starts another program that computes as much as it can."""
        self.burner = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "--", "sh", "-c", "while :; do :; done"]
        )
        self.put(self.burner.pid)

    def rest(self):
        if self.burner:
            self.burner.kill()
            self.burner.wait()
            self.burner = None

    def close(self):
        self.rest()
        for group in self.groups:
            with contextlib.suppress(OSError):
                for pid in (group / "cgroup.procs").read_text().split():
                    (group.parent / "cgroup.procs").write_text(pid)
                group.rmdir()
