# SPDX-License-Identifier: Apache-2.0
"""Limits per client: a client with too many sessions, or too many new ones, waits; others do
not."""

import contextlib

import pytest

from tests.lab import wait_until
from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.steelyard import VIP, WEB
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
BURST = 5
METRICS = "127.0.0.1:9274"


@pytest.mark.drops("client-rate")
@families
def test_client_over_its_rate_is_refused(stage, family):
    echo = stage.config[f"echo{family}"]
    echo.spread = {"client_limits": {"new_per_second": 1, "burst": BURST}}
    stage.apply()
    with contextlib.ExitStack() as stack:
        accepted = []
        for _ in range(100):
            try:
                one = connect(stage.client, VIP[family], ECHO, timeout_s=0.2)
            except TimeoutError:
                if stage.accounting.dropped()["client-rate"]:
                    break
                continue  # a slow answer
            accepted.append(stack.enter_context(one))
        else:
            pytest.fail("none of 100 connections was refused")
        assert len(accepted) >= BURST
        for one in accepted:
            one.sendall(b"x")
            assert receive_exactly(one, 1) == b"x", "sessions that exist go on"
        stack.enter_context(connect(stage.lab["far"], VIP[family], ECHO))
        assert http_get(stage.client, VIP[family], WEB), "another service is not limited"
    echo.spread = {}
    stage.apply()
    for _ in range(2 * BURST):
        connect(stage.client, VIP[family], ECHO).close()


# session-killed: later packets of a refused client, behind the refused one.
@pytest.mark.drops("client-sessions", "session-killed", "no-session")
@families
def test_client_over_its_session_limit_is_refused(stage, family):
    echo = stage.config[f"echo{family}"]
    echo.spread = {"client_limits": {"sessions": BURST}}
    stage.config.metrics = METRICS
    stage.apply()

    def refused():
        try:
            connect(stage.client, VIP[family], ECHO, timeout_s=0.2).close()
        except TimeoutError:
            return stage.accounting.dropped().get("client-sessions", 0) > 0
        return False  # one was missing so far, or an earlier one was still open

    def opened():
        """Returns a connection that was answered; None while the limit is reached."""
        try:
            one = connect(stage.client, VIP[family], ECHO, timeout_s=1)
            one.sendall(b"x")
            return one if receive_exactly(one, 1) == b"x" else None
        except (TimeoutError, ConnectionError):
            return None

    with contextlib.ExitStack() as stack:
        held = [stack.enter_context(wait_until(opened, "a place")) for _ in range(BURST)]
        wait_until(refused, "one more is refused")
        assert stage.steelyard.service(echo.name)["client_limits_refused"]
        text = stage.lab["forwarder"].ns.run(["curl", "-sS", f"http://{METRICS}/metrics"])
        assert "steelyard_service_client_limits_refused_total{" in text
        for one in held:
            one.sendall(b"y")
            assert receive_exactly(one, 1) == b"y", "sessions that exist go on"
        stack.enter_context(connect(stage.lab["far"], VIP[family], ECHO))
        assert http_get(stage.client, VIP[family], WEB), "another service is not limited"
        stage.steelyard.kill_forwarder()
        stage.steelyard.start_forwarder()
        stage.steelyard.wait_reconnected()
        wait_until(refused, "one more is refused after a restart")
        for one in held:
            one.sendall(b"z")
            assert receive_exactly(one, 1) == b"z", "sessions outlive a restart"
        held[0].close()
        stack.enter_context(wait_until(opened, "a session that ended leaves its place"))
