# SPDX-License-Identifier: Apache-2.0
"""Stops all programs of a lab together, as when its host gets no CPU."""

import os

from checks.disturb import descendants, stop_for

from tests.lab.wait import repeating


def stall(seconds):
    """Stops the programs that this process has started, and all their descendants."""
    stop_for(descendants(os.getpid())[1:], seconds)


def stalling(stop_s=2.2, run_s=0.2):
    """Stalls repeatedly within the block, for longer than timeouts of 2 s, and in each phase of an
    operation."""
    return repeating(lambda: stall(stop_s), run_s)
