# SPDX-License-Identifier: Apache-2.0
"""Threads that read sockets until they are stopped."""

import os
import select
import threading


class Reader:
    """A thread that calls read() with each readable one of some sockets, until close().

    A datagram with a wrong checksum makes its socket ready, and is discarded when it is read
    (select(2)): read with MSG_DONTWAIT."""

    def __init__(self, sockets, read):
        self._sockets, self._read = {one.fileno(): one for one in sockets}, read
        self._stop = os.eventfd(0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        waiting = select.poll()
        for number in (self._stop, *self._sockets):
            waiting.register(number, select.POLLIN)
        while self._stop not in (ready := [number for number, _ in waiting.poll()]):
            for number in ready:
                self._read(self._sockets[number])

    def close(self):
        """Ends the thread. A second call does nothing."""
        if self._thread.is_alive():
            os.eventfd_write(self._stop, 1)
            self._thread.join()
            os.close(self._stop)
