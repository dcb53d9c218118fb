# SPDX-License-Identifier: Apache-2.0
"""Records samples of dropped packets, so that a failed test can show the unexpected ones."""

import contextlib
import threading
from collections import deque

import scapy.layers.inet6  # noqa: F401
from scapy.layers.l2 import Ether

from tests.lab.api import forwarder as pb
from tests.wire.control import Control

FETCH_S = 1  # each request makes the forwarder sample for two seconds
KEPT = 1000  # packets


class DropLog:
    """Fetches samples of dropped packets until it is closed."""

    def __init__(self, path):
        self.path = path
        self.dropped = deque(maxlen=KEPT)
        self.after = 0
        self._closed = threading.Event()
        self._fetch()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._closed.wait(FETCH_S):
            self._fetch()

    def _fetch(self):
        # The forwarder may stop, restart or be replaced at any time.
        with contextlib.suppress(OSError), Control(self.path) as control:
            wanted = pb.FetchSamplesRequest(after=self.after, dropped=1)
            samples = control.ask(fetch_samples=wanted).fetch_samples
            self.after = samples.last
            self.dropped.extend(samples.samples)

    def close(self):
        self._closed.set()
        self._thread.join()

    def describe(self, reasons):
        """Returns a line for each packet that was dropped for one of these reasons."""
        self._fetch()
        return [
            f"{one.drop}, from interface {one.if_index}: {Ether(one.header).summary()} "
            f"{one.header.hex()}"
            for one in list(self.dropped)
            if one.drop in reasons
        ]
