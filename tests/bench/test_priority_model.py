# SPDX-License-Identifier: Apache-2.0
"""The simulator of the experiments with priorities agrees with queueing theory."""

import itertools

import numpy as np
import pytest

from bench.priority import experience, simulate

COUNT = 400_000


def mean_wait(arrive, service, leave, chosen=None):
    wait = leave - arrive - service
    return float(np.mean(wait if chosen is None else wait[chosen]))


def long_and_short(rng, count, share=0.5, short=1.0, long=3.0):
    """Two classes, short requests first; returns service times of both."""
    level = simulate.classes(rng, count, share)
    return level, np.where(level == 0, short, long)


def test_one_queue_follows_pollaczek_and_khinchine():
    rng = np.random.default_rng(1)
    level, service = long_and_short(rng, COUNT)
    rate = 0.3
    arrive = simulate.poisson(rng, rate, COUNT)
    load, square = rate * 2.0, 5.0  # E[S] = 2, E[S²] = (1 + 9) / 2
    expected = rate * square / (2 * (1 - load))
    leave = simulate.in_order(arrive, service)
    assert mean_wait(arrive, service, leave) == pytest.approx(expected, rel=0.03)
    assert np.allclose(simulate.serve(arrive, service, np.zeros(COUNT, int)), leave)


def cobham(rate, loads, level):
    """Returns the mean wait of a class in M/G/1 with non-preemptive priorities."""
    residual = rate * 5.0 / 2
    before, through = sum(loads[:level]), sum(loads[: level + 1])
    return residual / ((1 - before) * (1 - through))


def test_priorities_follow_cobham():
    rng = np.random.default_rng(2)
    count, rate = 150_000, 0.3
    level, service = long_and_short(rng, count)
    arrive = simulate.poisson(rng, rate, count)
    leave = simulate.serve(arrive, service, level)
    loads = [rate / 2 * 1, rate / 2 * 3]
    for number in (0, 1):
        wait = mean_wait(arrive, service, leave, level == number)
        assert wait == pytest.approx(cobham(rate, loads, number), rel=0.05)


def test_preemption_isolates_urgent_requests():
    rng = np.random.default_rng(3)
    count = 50_000
    level, service = long_and_short(rng, count)
    arrive = simulate.poisson(rng, 0.3, count)
    leave = simulate.serve(arrive, service, level, preempts=True)
    ideal = simulate.alone(arrive, service, level)
    urgent = level == 0
    assert np.allclose(leave[urgent], ideal[urgent])
    assert np.isnan(ideal[~urgent]).all()
    # Preemptive resume: T2 = E[S2]/(1-r1) + (residual of both)/((1-r1)(1-r1-r2)).
    first, both = 0.15, 0.6
    expected = 3 / (1 - first) + 0.3 * 5.0 / 2 / ((1 - first) * (1 - both))
    took = float(np.mean((leave - arrive)[~urgent]))
    assert took == pytest.approx(expected, rel=0.05)


def test_work_is_conserved():
    """In any order, the last request leaves when all work is done."""
    rng = np.random.default_rng(4)
    level, service = long_and_short(rng, 2000)
    arrive = simulate.bursts(2000, 2000, 1)
    for preempts in (False, True):
        leave = simulate.serve(arrive, service, level, preempts)
        assert leave.max() == pytest.approx(service.sum())
        assert not np.isnan(leave).any()


def test_reserved_core_runs_no_long_request():
    arrive = np.array([0.0, 0.0, 1.0, 1.5, 2.0])
    service = np.array([100.0, 100.0, 1.0, 1.0, 1.0])
    level = np.array([1, 1, 0, 0, 0])
    leave = simulate.serve(arrive, service, level, cores=[{0}, {0, 1}])
    assert list(leave) == [100.0, 200.0, 2.0, 3.0, 4.0]
    # Without a reserved core both are busy until 100.
    leave = simulate.serve(arrive, service, level, cores=[{0, 1}, {0, 1}])
    assert list(leave) == [100.0, 100.0, 101.0, 101.0, 102.0]


def test_shared_queue_of_several_cores_follows_erlang():
    rng = np.random.default_rng(5)
    count, rate, servers = 100_000, 1.5, 2
    arrive = simulate.poisson(rng, rate, count)
    service = rng.exponential(1.0, count)
    level = np.zeros(count, int)
    leave = simulate.serve(arrive, service, level, cores=[{0}] * servers)
    load = rate / servers
    waits = 2 * load**2 / (1 + load)  # Erlang C of two servers
    expected = waits / (servers - rate)
    assert mean_wait(arrive, service, leave) == pytest.approx(expected, rel=0.08)


def test_same_seed_draws_the_same():
    first, again, other = (
        simulate.poisson(np.random.default_rng(seed), 2, 10) for seed in (7, 7, 8)
    )
    assert (first == again).all()
    assert (first != other).any()


def test_bursts_arrive_together():
    assert list(simulate.bursts(5, 2, 10)) == [0, 0, 10, 10, 20]


def test_scheduler_behind_tcp_keeps_the_wait_before_tcp():
    """The paper's figures 1 and 5 agree: a third of the wait is before TCP."""
    p99 = {
        name: simulate.burst_waits(10_000, 0.05, 0.0, 1.0, 2.0, name)
        for name in ("none", "darc", "ours")
    }
    assert p99["darc"] / p99["none"] == pytest.approx(1 / 3 + 0.05 * 2 / 3, rel=0.02)
    # All arrive at once: urgent requests wait for each other, and no scheduler avoids that.
    assert p99["ours"] / p99["none"] == pytest.approx(0.05, rel=0.02)


def test_scheduler_removes_the_wait_of_a_spread_burst():
    """Urgent requests need not wait for each other; a stack as fast as the line passes all of them
    to the scheduler behind it."""
    p99 = {
        name: simulate.burst_waits(10_000, 0.05, 0.0, 1.0, 2.0, name, gap=0.5)
        for name in ("none", "darc", "ours")
    }
    assert p99["ours"] == pytest.approx(1 + 2)
    assert p99["none"] == pytest.approx(0.99 * 10_000 * 2.5, rel=0.01)
    fast = simulate.burst_waits(10_000, 0.05, 0.0, 0.3, 2.0, "darc", gap=0.5)
    assert fast == pytest.approx(0.3 + 2)


def test_experience_matches_the_paper():
    for seconds, value in ((2.08, 0.96), (6.25, 0.38), (4.22, 0.56), (3.61, 0.60)):
        assert experience.of(seconds) == pytest.approx(value)
    assert experience.of(0) == 1
    assert experience.of(60) == pytest.approx(0.38)
    values = [experience.of(tenth / 10) for tenth in range(100)]
    assert all(a >= b for a, b in itertools.pairwise(values))
