# SPDX-License-Identifier: Apache-2.0
"""A pair with bad cables: lost datagrams are repeated, and links fail in one direction."""

import time

import pytest

from tests.lab import wait_until
from tests.lab.api import forwarder as pb
from tests.lab.clients import http_get
from tests.lab.link import Link
from tests.lab.steelyard import VIP, WEB
from tests.wire.conversations import Conversations
from tests.wire.keepalived import elected
from tests.wire.pair import BACKUP, MASTER, Pair

BAD = {"loss": 0.05, "jitter_ms": 4, "order": "free", "duplicate": 0.02}
DEAD = {"loss": 1}
ways = pytest.mark.parametrize("way", ("ab", "ba"))


@pytest.fixture(scope="module")
def running():
    """The nodes have different numbers of workers. The backup's cable, which clients and servers do
    not use, is a link."""
    with Pair(2, 1) as pair, Link(pair.lab, "standby", interface="front") as link:
        yield pair, link


@pytest.fixture
def both(running):
    pair, link = running
    link.reset()
    pair.restore_roles()
    yield pair, link
    for process in pair.forwarders():
        assert process.alive(), process.describe()


def is_silent(node):
    return node.peer().state == pb.PEER_STATE_SILENT


def replicated(node, *talks):
    for talk in talks:
        talk.check_servers()  # UDP: the clients' second datagrams
    node.wait_replicated(sum(map(len, talks)))


def test_a_bad_sync_link_loses_no_session(both):
    """5 % loss, reordering and duplicates; sessions begin and end all the time."""
    pair, link = both
    first, second = pair.nodes.values()
    before = first.peer().retransmitted
    link.set(**BAD)
    with Conversations(pair) as talk:
        while first.peer().retransmitted == before:
            with Conversations(pair) as short:
                short.check_servers()
                short.abort()
        replicated(first, talk)
        link.reset()  # the backup's cable becomes the master's
        pair.swap(second)
        wait_until(lambda: second.role() == MASTER, "the other node serves")
        talk.check_servers()


def test_a_sync_link_is_cut_and_healed(both):
    """The report says that changes wait, and all of them arrive."""
    pair, link = both
    first, second = pair.nodes.values()
    with Conversations(pair) as talk:
        replicated(first, talk)
        link.set(**DEAD)
        with Conversations(pair) as more:
            more.check_servers()
            wait_until(lambda: is_silent(first) and is_silent(second), "both nodes see the cut")
            wait_until(lambda: first.peer().lag_ms, "the report says that changes wait")
            link.reset()
            healed = time.monotonic()
            first.wait_replicated(len(talk) + len(more))
            print(f"complete {time.monotonic() - healed:.1f} s after the heal")
            pair.swap(second)
            wait_until(lambda: second.role() == MASTER, "the other node serves")
            talk.check_servers()
            more.check_servers()


@ways
def test_a_sync_link_fails_in_one_direction(both, way):
    """No node waits for one that it cannot reach, or that it does not reach."""
    pair, link = both
    first, second = pair.nodes.values()
    with Conversations(pair) as talk:
        replicated(first, talk)
        link.set(way, **DEAD)
        wait_until(lambda: is_silent(first) and is_silent(second), "both nodes see it")
        with Conversations(pair) as more:
            more.check_servers()
            link.reset()
            replicated(first, talk, more)
            pair.swap(second)
            wait_until(lambda: second.role() == MASTER, "the other node serves")
            talk.check_servers()
            more.check_servers()


def test_a_master_that_no_host_hears():
    """The cable of VIPs and synchronisation passes what the master receives, and nothing that it
    sends. It believes that it serves; the other node does. After the heal one of them gives up the
    role, and no connection ends."""
    with Pair() as pair, Link(pair.lab, "forwarder", interface="front") as link, elected(pair):
        first, second = pair.nodes.values()
        with Conversations(pair, resend_s=3) as talk:
            replicated(first, talk)
            link.set("ab", **DEAD)
            wait_until(lambda: second.role() == MASTER, "the other node serves")
            pair.wait_announced(second)
            talk.check_servers()
            with Conversations(pair, resend_s=3) as more:
                more.check_servers()
                link.reset()
                wait_until(
                    lambda: {first.role(), second.role()} == {MASTER, BACKUP}, "one is the master"
                )
                talk.check_servers()
                more.check_servers()


def test_the_master_dies_while_it_copies():
    """The joining node has nothing yet. It serves what clients begin."""
    with Pair() as pair, elected(pair) as daemons:
        first, second = pair.nodes.values()
        with Conversations(pair, resend_s=3) as talk, pair.only_hellos(second):
            talk.check_servers()
            daemons[second].kill()
            second.steelyard.kill_forwarder()
            second.steelyard.cleanup()
            second.steelyard.start_forwarder()
            second.steelyard.wait_reconnected()
            wait_until(lambda: first.peer().unverified_there, "the peer lacks sessions")
            daemons[second].start()
            daemons[second].process.wait_for(r"VRRP_Script\(sessions\) failed")
            first.steelyard.kill_forwarder()  # and nothing starts it again
            wait_until(lambda: second.role() == MASTER, "the joining node serves")
            pair.wait_announced(second)
            assert http_get(pair.client, VIP[4], WEB, "/healthz") is not None
            talk.abort()
        first.steelyard.start_forwarder()
