# SPDX-License-Identifier: Apache-2.0
"""Socket calls in all states of a connection: the stack returns what Linux returns.

tests/conformance has the calls. Its file `differences` lists the cases that may differ, with a
reason of docs/run.md for each."""

import contextlib
import ctypes
import fnmatch
import re
import socket
import struct

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.run import PORT, SO_ATTACH_FILTER, Puppet, run_command
from tests.wire.running import V4, V6, families

CALLS = ROOT / "build/dev/tests/conformance/steelyard-conformance"
DIFFERENCES = ROOT / "tests/conformance/differences"
SILENT, REFUSED = 9001, 2
UNREACHABLE = {4: "10.99.0.9", 6: "fd99::9"}


@contextlib.contextmanager
def surroundings(lab, family):
    """Starts a peer, a port that drops SYNs, and an address to which a router has no route."""
    client, host = lab["client"], lab["forwarder"]
    address, far = client.address(family), UNREACHABLE[family]
    puppet = Puppet(client, address)
    nothing = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))  # ret #0
    silent = client.ns.socket(socket.AF_INET6 if family == 6 else socket.AF_INET)
    silent.setsockopt(
        socket.SOL_SOCKET, SO_ATTACH_FILTER, struct.pack("HP", 1, ctypes.addressof(nothing))
    )
    silent.bind((address, SILENT))
    silent.listen()
    for name in ("ipv4.ip_forward=1", "ipv6.conf.all.forwarding=1"):
        client.ns.run(["sysctl", "-qw", f"net.{name}"])
    for name in ("ipv4.icmp_ratelimit=0", "ipv6.icmp.ratelimit=0"):
        client.ns.run(["sysctl", "-qw", f"net.{name}"])
    client.ns.ip(f"-{family} route add unreachable {far}")
    host.ns.ip(f"-{family} route add {far} via {address}")
    try:
        yield address, far
    finally:
        client.ns.ip(f"-{family} route del unreachable {far}")
        host.ns.ip(f"-{family} route del {far} via {address}")
        silent.close()
        puppet.close()


def transcript(lab, command):
    lines = run(lab["forwarder"].ns.command(command), deadline_s=120).splitlines()
    assert lines[-1] == "done", lines[-3:]
    return dict(line.split(": ", 1) for line in lines[:-1])


def differences():
    """Returns patterns of cases, and the reason of each."""
    rows = [line for line in DIFFERENCES.read_text().splitlines() if line and line[0] != "#"]
    return [tuple(part.strip() for part in row.split("|")) for row in rows]


@families
def test_calls_return_what_linux_returns(stack, family):
    own = {4: V4, 6: V6}[family]
    with surroundings(stack, family) as (address, far):
        unused = re.sub(r"[0-9a-f]+$", "77", address)
        command = [CALLS, address, own, PORT, SILENT, REFUSED, far, unused]
        linux = transcript(stack, [str(word) for word in command])
        ours = transcript(stack, run_command(command))
    assert linux.keys() == ours.keys()
    found = {case for case in linux if linux[case] != ours[case]}
    allowed = {
        pattern: set(fnmatch.filter(found, pattern.lstrip("?")))
        for pattern, family_numbers, _ in differences()
        if str(family) in family_numbers
    }
    unknown = found.difference(*allowed.values())
    text = "".join(
        f"{case}\n   Linux: {linux[case]}\n   stack: {ours[case]}\n"
        for case in linux
        if case in unknown
    )
    assert not unknown, f"{len(unknown)} of {len(linux)} cases\n{text}"
    gone = [pattern for pattern, cases in allowed.items() if not cases and pattern[0] != "?"]
    assert not gone, f"no difference any more: {gone}"


def test_each_difference_is_documented():
    text = " ".join(
        (ROOT / "docs/run.md").read_text().split("## What differs from Linux")[1].split()
    )
    missing = [reason for _, _, reason in differences() if reason not in text]
    assert not missing
