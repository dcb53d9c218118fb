# SPDX-License-Identifier: Apache-2.0
"""Stops all programs of a lab together, as when its host gets no CPU."""

import contextlib
import os
import threading

from checks.disturb import descendants, stop_for


def stall(seconds):
    """Stops the programs that this process has started, and all their descendants."""
    stop_for(descendants(os.getpid())[1:], seconds)


@contextlib.contextmanager
def stalling(stop_s=2.2, run_s=0.2):
    """Stalls repeatedly within the block, for longer than timeouts of 2 s, and in each phase of an
    operation."""
    ended = threading.Event()

    def work():
        while not ended.wait(run_s):
            stall(stop_s)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
