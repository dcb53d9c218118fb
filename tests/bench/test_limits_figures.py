# SPDX-License-Identifier: Apache-2.0
"""Results of the virtual-time experiments with limits, on any machine."""

import pytest

from bench import run_limits

USERS = ("before", "beside", "away")


def losses(engine, elephant):
    """Losses of all users before the elephant, of its neighbours, and of others."""
    rows = list(run_limits.beside(engine, elephant))
    return {users: row["value"] for users in USERS for row in rows if users in row["metric"]}


@pytest.mark.parametrize("elephant", run_limits.ELEPHANTS)
def test_sudden_elephant_harms_neighbours_only_with_static_steering(elephant):
    static = losses("own", elephant)
    assert static["before"] == static["away"] == 0
    assert static["beside"] > 10
    for engine in ("cas", "lock"):
        assert losses(engine, elephant) == {"before": 0, "beside": 0, "away": 0}


def errors(engine, consumers):
    """Errors of the observed user's samples in percent; and how many interrupted takes found the
    bucket changed."""
    rows = list(run_limits.exactness(engine, consumers, 2))
    samples = [row["value"] for row in rows if row["metric"] == "error of a sample, observed user"]
    (stale,) = [row["value"] for row in rows if row["metric"].startswith("stale views")]
    assert len(samples) == 2
    return samples, stale


@pytest.mark.parametrize("engine", ("cas", "lock"))
def test_interleaved_takes_keep_exact_rates(engine):
    samples, stale = errors(engine, 16)
    assert max(samples) <= 1
    assert stale > 1


def test_interleaved_takes_without_protection_are_inexact():
    samples, stale = errors("own", 16)
    assert min(samples) > 5
    assert stale > 1


def test_real_time_covers_each_engine_with_one_and_two_consumers():
    def consumers(engine):
        return {number for options, number, _ in run_limits.REAL_TIME if engine in options}

    for engine in ("cas", "lock", "light-lock", *run_limits.DEVICES):
        assert consumers(engine) == {1, 2}
    assert consumers("own") == {1}
