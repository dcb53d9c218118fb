# SPDX-License-Identifier: Apache-2.0
"""Clients of several services, with counts."""

import statistics
import threading
import time
from collections import Counter

from tests.lab.clients import http_get


class Clients(threading.Thread):
    """Sends requests to services in turn, one connection each, until closed."""

    def __init__(self, host, vips, pause_s=0.01):
        super().__init__(daemon=True)
        self.host, self.vips, self.pause_s = host, vips, pause_s
        self.lock, self.ending = threading.Lock(), False
        self.begin()

    def begin(self):
        """Restarts the counts."""
        with self.lock:
            self.times, self.failed = {}, Counter()

    def run(self):
        while not self.ending:
            for vip in self.vips:
                began = time.monotonic()
                try:
                    name = http_get(self.host, vip, 80, timeout_s=5).decode().strip()
                except OSError:
                    name = None
                with self.lock:
                    if name:
                        took = time.monotonic() - began
                        self.times.setdefault(name, []).append(took)
                    else:
                        self.failed[vip] += 1
                time.sleep(self.pause_s)

    def count(self):
        with self.lock:
            return sum(map(len, self.times.values()))

    def served(self):
        with self.lock:
            return {name: len(times) for name, times in self.times.items()}

    def mean_ms(self):
        with self.lock:
            return 1000 * statistics.fmean(t for times in self.times.values() for t in times)

    def even_ms(self):
        """Returns the mean time of a request if all servers that answered had the same share."""
        with self.lock:
            return 1000 * statistics.fmean(map(statistics.fmean, self.times.values()))

    def close(self):
        self.ending = True
        self.join()
