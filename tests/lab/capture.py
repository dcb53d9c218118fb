# SPDX-License-Identifier: Apache-2.0
"""Captures an interface's frames in both directions, and sends frames on it."""

import contextlib
import socket

# Imported so that scapy dissects frames beyond Ethernet.
import scapy.layers.inet6  # noqa: F401
from scapy.layers.l2 import Ether

from tests.lab.readiness import Reader
from tests.lab.wait import DEADLINE_S, wait_until

ETH_P_ALL = 3
PACKET_OUTGOING = 4


class Capture:
    """Collects frames from its creation on. `frames` are (outgoing, bytes), oldest first."""

    def __init__(self, ns, interface):
        with ns.entered():
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16 << 20)
        self.socket.bind((interface, ETH_P_ALL))
        self.interface = interface
        self.frames = []
        self._reader = Reader([self.socket], self._collect)

    def _collect(self, one):
        with contextlib.suppress(OSError):
            data, address = one.recvfrom(65535, socket.MSG_DONTWAIT)
            self.frames.append((address[2] == PACKET_OUTGOING, data))

    def packets(self, match=lambda packet: True, outgoing=None):
        """Returns dissected frames that match. outgoing=True: only this host's frames; False: the
        others."""
        found = []
        for sent, data in list(self.frames):
            if outgoing is None or sent == outgoing:
                packet = Ether(data)
                if match(packet):
                    found.append(packet)
        return found

    def wait_for(self, match, what, outgoing=None, deadline_s=DEADLINE_S):
        """Waits for the first frame that matches."""
        return wait_until(lambda: self.packets(match, outgoing), what, deadline_s)[0]

    def send(self, packet):
        """Sends a frame as this host."""
        self.socket.send(bytes(packet))

    def close(self):
        self._reader.close()
        self.socket.close()
