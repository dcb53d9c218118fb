# SPDX-License-Identifier: Apache-2.0
"""What the experiments with limits in virtual time must find, whatever the machine."""

import pytest

from bench import run_limits


USERS = ("before", "beside", "away")


def losses(engine, elephant):
    """Of all users before the elephant, of those beside it, and away from it."""
    rows = list(run_limits.beside(engine, elephant))
    return {users: row["value"] for users in USERS for row in rows if users in row["metric"]}


@pytest.mark.parametrize("elephant", run_limits.ELEPHANTS)
def test_a_sudden_elephant_harms_its_neighbours_by_static_steering_only(elephant):
    static = losses("own", elephant)
    assert static["before"] == static["away"] == 0
    assert static["beside"] > 10
    for engine in ("cas", "lock"):
        assert losses(engine, elephant) == {"before": 0, "beside": 0, "away": 0}
