# SPDX-License-Identifier: Apache-2.0
"""Measures delays of datagrams: the sender, a separate process, writes the time into each, and the
kernel records its arrival. Both use this machine's clock, so neither has to be prompt."""

import os
import socket
import struct
import sys
import time
from collections import defaultdict

from tests.lab.datagrams import Receiver
from tests.lab.lab import ROOT

SO_TIMESTAMPNS = 35  # socket(7); also the type of its control message
STAMP = struct.Struct("!Iq")  # tag, ns
TIMESPEC = struct.Struct("qq")


class Delays(Receiver):
    """Milliseconds that datagrams to a UDP port took, by tag."""

    def __init__(self, host, port):
        self.ms = defaultdict(list)
        super().__init__(host, port, options=[(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)])

    def note(self, data, ancillary):
        if len(data) < STAMP.size or not ancillary:
            return
        tag, sent = STAMP.unpack_from(data)
        seconds, ns = TIMESPEC.unpack(ancillary[0][2])
        self.ms[tag].append((seconds * 1_000_000_000 + ns - sent) / 1e6)


def start_stamped(lab, host, address, port, tag, rate, count, kind=0):
    """Sends datagrams of 200 bytes, `rate` per second; the process ends with the last one."""
    words = [address, port, tag, rate, count, kind]
    argv = [sys.executable, "-m", "tests.lab.delays", *words]
    name = f"stamped-{len(lab.processes)}"
    return lab.start(host, name, argv, env={**os.environ, "PYTHONPATH": str(ROOT)})


def share(values, part):
    """Returns the value that a fraction `part` of the values does not exceed."""
    ranked = sorted(values)
    return ranked[min(int(part * len(ranked)), len(ranked) - 1)]


def main(address, port, tag, rate, count, kind):
    out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    out.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, int(kind))
    begin = time.monotonic()
    for n in range(int(count)):
        time.sleep(max(begin + n / float(rate) - time.monotonic(), 0))
        data = STAMP.pack(int(tag), time.time_ns()).ljust(172, b".")
        out.sendto(data, (address, int(port)))


if __name__ == "__main__":
    main(*sys.argv[1:])
