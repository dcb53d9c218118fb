# SPDX-License-Identifier: Apache-2.0
"""Shared by the tests of the link emulator: two hosts, a link between them, numbered datagrams."""

import contextlib
import json
import re
import socket
import struct

import pytest

from tests.lab import Lab, wait_until
from tests.lab.datagrams import SO_RCVBUFFORCE
from tests.lab.link import Link, balance

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
PORT = 9601
AGES = {"delay_s": 900}  # stays in flight until hurry()


@pytest.fixture(scope="module")
def link_lab():
    with Lab(arms=1, servers=0) as lab:
        yield lab


@pytest.fixture(scope="module")
def one_link(link_lab):
    with Link(link_lab, "client", "far") as link:
        yield link
        assert link.process.stop() == 0


@pytest.fixture
def link(link_lab, one_link):
    yield one_link
    one_link.set(defaults="")
    one_link.hurry()
    stats = one_link.settle()
    assert not any(balance(stats[way]) for way in ("ab", "ba")), stats
    one_link.reset()
    link_lab.close_captures()
    for family in (4, 6):
        link_lab["client"].ns.ip(f"-{family} route flush cache")


def inet(family):
    return socket.AF_INET if family == 4 else socket.AF_INET6


class Flow:
    """Datagrams from the link's end a to a socket at its end b."""

    def __init__(self, link, family=4):
        self.link = link
        self.sink = link.lab["far"].ns.socket(inet(family), socket.SOCK_DGRAM)
        self.sink.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        self.sink.bind((link.address("b", family), PORT))
        self.source = link.lab["client"].ns.socket(inet(family), socket.SOCK_DGRAM)
        self.source.connect((link.address("b", family), PORT))
        # Permanent neighbour entries: packets delayed for minutes must not wait for resolution.
        for host, other, end in (("client", "far", "b"), ("far", "client", "a")):
            mac = link.lab[other].ns.mac(link.name)
            known = f"{link.address(end, family)} lladdr {mac} dev {link.name} nud permanent"
            link.lab[host].ns.ip(f"neigh replace {known}")
        link.set_seed(link.seed)
        self.begin = self.came()

    def came(self):
        stats = self.link.stats("ab")
        return stats["arrived"] - stats["spared"]

    def send(self, count, size=100, window=4096):
        """Sends numbered datagrams; the link never has more of them unread than its ring holds."""
        for number in range(count):
            self.source.send(struct.pack("!I", number).ljust(size, b"."))
            if (number + 1) % window == 0:
                self.wait(number + 1)
        self.wait(count)
        self.begin += count

    def wait(self, count):
        wait_until(lambda: self.came() >= self.begin + count, "the link has read it")

    def received(self):
        """Returns the numbers of all received datagrams, in order."""
        self.link.settle()
        numbers = []
        with contextlib.suppress(BlockingIOError):
            while True:
                data = self.sink.recv(65535, socket.MSG_DONTWAIT)
                assert not data[4:].strip(b"."), "what arrives is intact"
                numbers.append(struct.unpack_from("!I", data)[0])
        return numbers

    def close(self):
        self.source.close()
        self.sink.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


def received_frames(lab, link):
    (one,) = json.loads(lab["far"].ns.run(["ip", "-j", "-s", "link", "show", "dev", link.name]))
    return one["stats64"]["rx"]["packets"]


def rtts(lab, address, count=5):
    """Returns round-trip times in ms."""
    text = lab["client"].ns.run(["ping", "-n", f"-c{count}", "-i0.02", "-W60", address])
    return [float(ms) for ms in re.findall(r"time=([\d.]+) ms", text)]


def outcome_counters(stats, before=None):
    names = ("duplicated", "corrupted", "reordered", "bursts")
    found = {name: stats[name] - (before[name] if before else 0) for name in names}
    for name in ("loss", "burst"):
        found[name] = stats["drops"][name] - (before["drops"][name] if before else 0)
    return found
