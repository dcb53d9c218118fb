# SPDX-License-Identifier: Apache-2.0
"""Threads that read sockets until they are stopped."""

import select

LOOK_S = 0.1  # interval between checks of the event


def ready_until(stopped, sockets):
    """Yields each readable socket, until the threading.Event `stopped` is set.

    A datagram with a wrong checksum makes its socket ready, and is discarded when it is read
    (select(2)): read with MSG_DONTWAIT."""
    while not stopped.is_set():
        yield from select.select(sockets, [], [], LOOK_S)[0]
