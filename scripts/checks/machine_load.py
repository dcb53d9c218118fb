# SPDX-License-Identifier: Apache-2.0
"""Resources of this machine at present: lanes of tests, and the share of a core that a program
gets."""

import functools
import os
import time
from pathlib import Path

MIN_GB = 1  # of memory, the minimum for any test
LANE_GB = 2  # of memory: two labs with sanitized forwarders, their servers and clients
MAX_LANES = 8
MIN_CORE_SHARE = 0.4  # of a core: with less, a further lane only delays tests
PROBE_S = 0.02


@functools.cache
def lanes(cores=None, memory_gb=None):
    """Returns the number of parallel lanes: five for two cores, because tests of traffic wait for
    three quarters of their time, and at least two. More would leave a lane less huge pages than a
    lab needs."""
    cores = cores or len(os.sched_getaffinity(0))
    memory_gb = memory_available_gb() if memory_gb is None else memory_gb
    return max(2, min(5 * cores // 2, int(memory_gb / LANE_GB), MAX_LANES))


def memory_available_gb():
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) / (1 << 20)
    return 0


@functools.cache
def lane_pages():
    """Returns how many huge pages of 2 MB a lane may use: its share of those that are free when the
    first lane starts."""
    file = Path("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages")
    return int(file.read_text()) // lanes() if file.exists() else 0


def core_share(compute_s=PROBE_S):
    """Returns the share of a core that a computing program gets now, up to 1. Other programs, steal
    time, quotas and stops lower it; low-priority programs do not."""
    begun, used = time.monotonic(), time.thread_time()
    while time.thread_time() - used < compute_s:
        pass
    return min(1, compute_s / (time.monotonic() - begun))


class Interval:
    """Pressure and steal time between two points in time."""

    def __init__(self):
        self.begin = self.totals()

    @staticmethod
    def totals():
        """Returns seconds by name since the machine's start."""
        found = {"time": time.monotonic()}
        fields = Path("/proc/stat").read_text().split("\n", 1)[0].split()
        found["steal"] = int(fields[8]) / os.sysconf("SC_CLK_TCK") / os.cpu_count()
        for kind in ("cpu", "memory", "io"):
            file = Path("/proc/pressure") / kind
            if file.exists():
                found[kind] = int(file.read_text().split("\n")[0].rpartition("=")[2]) / 1e6
        return found

    def describe(self):
        """Returns one line: the duration, and the shares of it in which tasks waited for each
        resource."""
        end = self.totals()
        wall = max(end["time"] - self.begin["time"], 1e-3)
        shares = [
            f"{name} {100 * (end[key] - self.begin[key]) / wall:.0f} %"
            for key, name in (
                ("cpu", "tasks waited for a core"),
                ("memory", "for memory"),
                ("io", "for a disk"),
                ("steal", "steal"),
            )
            if key in end and key in self.begin
        ]
        return f"in its {wall:.0f} s: " + ", ".join(shares)
