# SPDX-License-Identifier: Apache-2.0
"""Limits for each client: who begins too many sessions waits, and nobody else."""

import contextlib

import pytest

from tests.lab.clients import connect, http_get, receive_exactly
from tests.lab.steelyard import VIP, WEB
from tests.wire.stage import ECHO

families = pytest.mark.parametrize("family", (4, 6), ids=("v4", "v6"))
BURST = 5


@pytest.mark.drops("client-rate")
@families
def test_a_client_that_begins_too_many(stage, family):
    echo = stage.config[f"echo{family}"]
    echo.spread = {"client_limits": {"new_per_second": 1, "burst": BURST}}
    stage.apply()
    with contextlib.ExitStack() as stack:
        admitted = []
        for _ in range(100):
            try:
                one = connect(stage.client, VIP[family], ECHO, timeout_s=0.2)
            except TimeoutError:
                if stage.accounting.dropped()["client-rate"]:
                    break
                continue  # a slow answer
            admitted.append(stack.enter_context(one))
        else:
            pytest.fail("none of 100 connections was refused")
        assert len(admitted) >= BURST
        for one in admitted:
            one.sendall(b"x")
            assert receive_exactly(one, 1) == b"x", "sessions that exist go on"
        stack.enter_context(connect(stage.lab["far"], VIP[family], ECHO))
        assert http_get(stage.client, VIP[family], WEB), "another service is not limited"
    echo.spread = {}
    stage.apply()
    for _ in range(2 * BURST):
        connect(stage.client, VIP[family], ECHO).close()
