# SPDX-License-Identifier: Apache-2.0
"""Waits for a condition to become true, never for a fixed time."""

import contextlib
import threading
import time

# Interval between checks: a tenth of the time waited so far, within these limits. Some checks start
# a program, which takes CPU time.
POLL_S, MAX_POLL_S = 0.02, 0.25
# Longer than any machine stands still: a limit ends a hanging test, and judges no speed.
DEADLINE_S = 300


class Expired(AssertionError):
    """The condition did not become true before its deadline."""


def within_tries(tries, attempt, what):
    """Returns attempt()'s first true value: for attempts that fail if the machine stands still
    meanwhile. A frequent fault still fails."""
    for _ in range(tries):
        if value := attempt():
            return value
    raise AssertionError(f"not in {tries} tries: {what}")


def wait_until(condition, what, deadline_s=DEADLINE_S):
    """Returns condition()'s first true value; raises Expired, naming `what`, after deadline_s.

    `what` may be a function that returns the name at the deadline."""
    begun = time.monotonic()
    while True:
        value = condition()
        if value:
            return value
        waited = time.monotonic() - begun
        if waited >= deadline_s:
            raise Expired(f"waited {deadline_s:g} s in vain: {what() if callable(what) else what}")
        time.sleep(min(max(POLL_S, waited / 10), MAX_POLL_S))


@contextlib.contextmanager
def repeating(act, interval_s):
    """Calls a function in a thread within the block, again `interval_s` after each call."""
    ended = threading.Event()

    def work():
        while not ended.wait(interval_s):
            act()

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
