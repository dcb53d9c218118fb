# SPDX-License-Identifier: Apache-2.0
"""Waiting for something to become true, never for time to pass."""

import time

POLL_S = 0.02


class Expired(AssertionError):
    """The condition did not come true before its deadline."""


def wait_until(condition, what, deadline_s=20.0):
    """Returns condition()'s first true value; raises Expired, naming `what`, after deadline_s.

    `what` may be a function that tells it when it is too late.
    """
    end = time.monotonic() + deadline_s
    while True:
        value = condition()
        if value:
            return value
        if time.monotonic() >= end:
            raise Expired(f"waited {deadline_s:g} s in vain: {what() if callable(what) else what}")
        time.sleep(POLL_S)
