# SPDX-License-Identifier: Apache-2.0
"""A controller configures a real forwarder through its agent, and dies: traffic goes on."""

import pytest

from tests.lab.clients import HttpConnection, http_get
from tests.lab.steelyard import VIP, WEB
from tests.wire.joined import Joined


@pytest.fixture
def joined(stage):
    one = Joined(stage)
    try:
        one.start()
        yield one
    finally:
        one.close()


def test_traffic_outlives_the_controller(stage, joined):
    #   client ── forwarder ── s1, s2, …
    #                 │
    #          agent ─┘◄── controller: killed, and started again
    joined.apply()
    joined.await_in_force("the forwarder has what is desired")
    stage.steelyard.wait_all_up()

    with HttpConnection(stage.client, VIP[4], WEB) as old:
        served = old.get()
        joined.controllers.kill("c1")
        stage.steelyard.agent.wait_for("no connection to a controller")
        for _ in range(20):
            assert old.get() == served
            assert http_get(stage.client, VIP[4], WEB)

        # The agent goes on: it finds a dead server, and starts again from what it has.
        name, web = next(iter(stage.nginx.items()))
        web.stop()
        stage.steelyard.wait_server("web4", stage.lab[name].address(4), "down")
        stage.steelyard.agent.kill()
        joined.start_agent()
        stage.steelyard.wait_in_sync()
        before = joined.weights()
        assert http_get(stage.client, VIP[4], WEB)

    # A controller that comes back finds its state and the agent, and changes go through again.
    joined.controllers.start()
    joined.await_in_force("the agent has come back")
    assert joined.weights() == before
    joined.apply(weight=7)
    assert joined.weights() == {7}
