# SPDX-License-Identifier: Apache-2.0
"""Clocks of three controllers and an agent change while they run: changes arrive, leadership moves,
and clients notice nothing.

test_controller_chaos.py does this at random, among other faults."""

import pytest

from tests.lab import wait_until
from tests.lab.clients import HttpConnection, http_get
from tests.lab.clocks import DAY, HOUR
from tests.lab.steelyard import VIP, WEB
from tests.wire.joined import Joined

pytestmark = pytest.mark.workers(1)  # none of it is a worker's
LOST = 40 * DAY  # longer than a certificate's lifetime


@pytest.fixture
def joined(stage):
    one = Joined(stage, count=3, clocked=True)
    try:
        one.start()
        one.apply(weight=2)
        one.await_in_force("the forwarder has what is desired")
        stage.steelyard.wait_all_up()
        yield one
    finally:
        one.close()


def test_programs_use_their_adjusted_clocks(joined):
    # Otherwise the other tests prove nothing.
    def year():
        (newest, *_) = joined.controllers.get("get", "audit", at="c1")
        return int(newest["at"][:4])

    now = year()
    joined.controllers.clocks.set("c1", 20 * 365 * DAY)
    joined.controllers.token(joined.dir / "token", "f9")
    assert year() in (now + 19, now + 20)
    joined.controllers.clocks.set("c1", 0)


def test_changes_and_takeovers_work_with_wrong_clocks(stage, joined):
    #                        ┌ c1   8 days behind, then ahead
    #   agent ◄──────────────┼ c2   8 days ahead, then behind
    #   8 days ahead, …      └ c3   an hour ahead, then behind
    clocks = joined.controllers.clocks
    offsets = {"f1": 8 * DAY, "c1": -8 * DAY, "c2": 8 * DAY, "c3": HOUR}
    with HttpConnection(stage.client, VIP[4], WEB) as old:
        served = old.get()
        weight = 2
        for sign in (1, -1):
            for name, offset in offsets.items():
                clocks.set(name, sign * offset)
            for name in joined.controllers.names:
                weight += 1
                joined.change(weight, name)
                assert old.get() == served
                assert http_get(stage.client, VIP[4], WEB)

            serves = wait_until(joined.server, "the agent is served")
            joined.controllers.kill(serves)
            rest = joined.controllers.awake()
            wait_until(lambda rest=rest: joined.server() in rest, "another one takes over")
            weight += 1
            joined.change(weight, rest[0])
            assert old.get() == served
            joined.controllers.revive()

    # No program derives ages or order from two clocks, or renews certificates because of them.
    wait_until(lambda: joined.controllers.try_get("get", "placement"), "all answer")
    for name in joined.controllers.names:
        (place,) = joined.controllers.get("get", "placement", at=name)["forwarders"]
        assert 0 <= place["age_ms"] < HOUR * 1000, place
        done = [one["revision"] for one in joined.controllers.get("get", "audit", at=name)]
        assert done == sorted(done, reverse=True)
    assert "certificate" not in stage.steelyard.agent.output()


def test_controller_with_a_wrong_clock_counts_as_lost(joined):
    clocks = joined.controllers.clocks
    # Months behind, it would issue certificates that others consider expired: the new host joins by
    # the next controller, and both use that one.
    clocks.set("c1", -LOST)
    joined.steelyard.agent.kill()
    joined.enlist()
    joined.change(3, "c2")

    # Months ahead at its start, it is a member of the others' etcd and accepts orders on its
    # socket; other controllers serve the agents.
    joined.controllers.kill("c1")
    clocks.set("c1", LOST)
    joined.controllers.start("c1")
    joined.change(4, "c1")
    wait_until(lambda: joined.server() in ("c2", "c3"), "another one serves the agent")

    # Correct again, it needs no intervention.
    clocks.set("c1", 0)
    joined.change(5, "c1")
    joined.await_in_force("what is desired is in force")
