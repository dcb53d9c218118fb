# SPDX-License-Identifier: Apache-2.0
"""`steelyard stack`, and links whose checksums are unfinished."""

import contextlib
import json

from tests.lab.commands import run_steelyard


def _told(*words):
    """Returns the output of `steelyard stack` as JSON."""
    return json.loads(run_steelyard("stack", *words, "-o", "json"))


def listed(name):
    """Returns the entry of a program on the stack, with its counters and losses."""
    (view,) = _told("list", "--stack", name)
    return view


def connections(name, state=None, *words):
    told = _told("connections", "--stack", name, *words)
    return [one for one in told if state in (None, one["state"])]


@contextlib.contextmanager
def unfinished_checksums(lab):
    """Leaves checksums between client and program to devices that do not compute them."""
    ends = [(lab["client"].ns, "eth0"), (lab["switch"].ns, "client-eth0")]
    ends += [(lab["switch"].ns, "forwarder-front")]
    for ns, name in ends:
        ns.run(["ethtool", "-K", name, "tx", "on"])
    try:
        yield
    finally:
        for ns, name in ends:
            ns.finish_checksums(name)
