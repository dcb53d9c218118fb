# SPDX-License-Identifier: Apache-2.0
"""The far end of tunnels, for servers whose kernel lacks the module.

Raw sockets receive tunnel packets; a TUN interface passes their contents to the server's kernel."""

import contextlib
import fcntl
import os
import socket
import struct

from tests.lab.readiness import Reader

IPV4, IPV6 = 4, 41  # the inner protocol number
TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


class TunnelEnd:
    """Decapsulates on a host: packets of both families, in tunnels over both. `carried` counts."""

    def __init__(self, host):
        self.carried = {(outer, inner): 0 for outer in (4, 6) for inner in (4, 6)}
        with host.ns.entered():
            self.tun = os.open("/dev/net/tun", os.O_RDWR)
            request = struct.pack("16sH22x", b"tunnel0", IFF_TUN | IFF_NO_PI)
            fcntl.ioctl(self.tun, TUNSETIFF, request)
        host.ns.ip("link set tunnel0 up")
        self.ends = {}
        for outer, family in ((4, socket.AF_INET), (6, socket.AF_INET6)):
            for inner, protocol in ((4, IPV4), (6, IPV6)):
                end = host.ns.socket(family, socket.SOCK_RAW, protocol)
                end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                self.ends[end] = outer, inner
        self.reader = Reader(self.ends, self._carry)

    def _carry(self, end):
        packet = end.recv(65536)
        # An IPv4 raw socket also receives the header.
        start = (packet[0] & 15) * 4 if self.ends[end][0] == 4 else 0
        with contextlib.suppress(OSError):  # no IP packet: damaged on the path
            os.write(self.tun, packet[start:])
        self.carried[self.ends[end]] += 1

    def close(self):
        self.reader.close()
        for end in self.ends:
            end.close()
        os.close(self.tun)
