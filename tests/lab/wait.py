# SPDX-License-Identifier: Apache-2.0
"""Waits for a condition to become true, never for a fixed time."""

import time

POLL_S = 0.02
# Longer than any machine stands still: a limit ends a test that hangs, and judges no speed.
DEADLINE_S = 300


class Expired(AssertionError):
    """The condition did not become true before its deadline."""


def within_tries(tries, attempt, what):
    """Returns attempt()'s first true value: for what fails if the machine stands still meanwhile.
    A fault that comes often still fails."""
    for _ in range(tries):
        if value := attempt():
            return value
    raise AssertionError(f"not in {tries} tries: {what}")


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Returns condition()'s first true value; raises Expired, naming `what`, after deadline_s.

    `what` may be a function that returns the name at the deadline.
    """
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Expired(f"waited {deadline_s:g} s in vain: {what() if callable(what) else what}")
        time.sleep(POLL_S)
