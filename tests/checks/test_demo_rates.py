# SPDX-License-Identifier: Apache-2.0
"""Verdicts of the demos of rates and delays: a missed goal is reported and fails the demo."""

import threading

import pytest

from tests.demo import perform, rates
from tests.demo.rates import Rates
from tests.demo.shaping import ACME, GOAL, HIGH, LOW, PROBES, RATE, Shaping
from tests.demo.show import Failed
from tests.lab.delays import share

SOON, LATE = [0.2] * PROBES, [300.0] * 900


class Steelyard:
    """Stands for an installation that forwarded what a test says."""

    def __init__(self, *reasons):
        self.reasons = reasons

    def drops(self):
        return dict.fromkeys(self.reasons, 1)

    def cli(self, *words):
        return " ".join(words) + "\n"


@pytest.fixture
def demo():
    one = Shaping.__new__(Shaping)
    Rates.__init__(one, lab=None)
    one.steelyard = Steelyard("shaping-full")
    return one


@pytest.mark.parametrize("error", (-4, -2.9, 0, 2.9, 4))
def test_rate_outside_its_tolerance_is_missed(demo, error):
    demo.judge("the port", "all", RATE * (1 + error / 100), RATE, GOAL, "its rate")
    assert len(demo.missed) == (abs(error) > GOAL)
    (row,) = demo.rows
    assert row[2:4] == [f"{RATE * (1 + error / 100) / 1e6:.3f} Mbit/s", "20.000 Mbit/s"]
    assert row[4].startswith(f"{error:+.2f} %")


@pytest.mark.parametrize("error", (-4, -2.9, 0, 90))
def test_rate_below_its_guarantee_is_missed(demo, error):
    demo.judge_least("acme", "all", ACME * (1 + error / 100), ACME, GOAL)
    assert len(demo.missed) == (error < -GOAL)


@pytest.mark.parametrize(
    ("high", "low", "missed"),
    (
        (SOON, LATE, []),
        (SOON[1:], LATE, ["1599 of 1600 packets arrived"]),
        (SOON, [], ["low class: 0 of"]),
        ([], LATE, ["high class: 0 of"]),
        ([3.0] * PROBES, [20.0] * 900, ["median of 3.00 ms"]),
        (SOON[:1500] + [1000.0] * 100, LATE, ["p99 of 1000.00 ms"]),
        (SOON, [0.1] * 900, ["median of", "p99 of"]),
    ),
)
def test_delays_are_judged(demo, high, low, missed):
    demo.judge_delays(high, low)
    assert len(demo.missed) == len(missed)
    assert all(text in said for text, said in zip(missed, demo.missed, strict=True))


def test_measurement_with_a_delayed_sender_is_repeated(demo):
    class Sender:
        rate = 1000

    demo.senders = {("gold", 1): Sender, ("bulk", 1): Sender}
    demo.offered, demo.slowest = (
        {("gold", 1): 8e6, ("bulk", 1): 7e6},
        {("gold", 1): 5e6, ("bulk", 1): 4e6},
    )
    assert demo.held_up() == ["bulk"]
    results = iter((1, 2, 3, 4, 5))
    assert demo.steady(lambda: next(results)) == 4, "it is no endless demo"
    demo.slowest["bulk", 1] = 5e6
    assert demo.steady(lambda: next(results)) == 5
    assert demo.offer(("gold", 1), ("bulk", 1)) == "15.000 Mbit/s"


def test_slowest_half_second_is_found(demo, monkeypatch):
    monkeypatch.setattr(rates, "SLICE_S", 0.001)
    seen, enough = [], threading.Event()

    class Sender:
        rate = 1000

        @property
        def sent(self):
            seen.append(len(seen) and seen[-1] + (len(seen) != 3))  # one interval has no packets
            if len(seen) > 5:
                enough.set()
            return seen[-1]

    demo.senders = {("gold", 1): Sender()}
    with demo.watching():
        assert enough.wait(30)
    assert demo.slowest == {("gold", 1): 0}
    assert demo.held_up() == ["gold"]


def test_shares_are_judged():
    assert share(range(1, 101), 0.5) == 51
    assert share(range(1, 101), 0.99) == 100
    assert share([7], 0.99) == 7


def test_account_lists_unexpected_drops(demo, capsys):
    demo.judge("the port", "all", RATE, RATE, GOAL)
    demo.account()
    assert not demo.missed
    out = capsys.readouterr().out
    assert all(word in out for word in [*Shaping.HEAD, "the port", "20.000 Mbit/s"])
    demo.steelyard = Steelyard("shaping-full", "no-route")
    demo.account()
    assert demo.missed == ["all that was dropped found its queue full"]


def test_service_without_arrivals_has_a_row(demo):
    assert demo.delay_cells([]) == ["0 of 1600", "-", "-"]
    assert demo.delay_cells(SOON) == ["1600 of 1600", "0.20 ms", "0.20 ms"]
    assert HIGH != LOW


class Lab:
    processes = ()

    def __init__(self, **_):
        pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


@pytest.mark.parametrize(("behave", "status"), (("well", 0), ("miss", 1), ("fail", 1)))
def test_exit_status_is_the_verdict(monkeypatch, behave, status):
    class Demo:
        def __init__(self, _):
            self.missed, self.steelyard = [], None

        def run(self):
            if behave == "miss":
                self.missed.append("a goal")
            if behave == "fail":
                raise Failed("a claim")

        def stop(self):
            pass

    monkeypatch.setattr(perform, "Lab", Lab)
    monkeypatch.setattr(perform, "catch_signals", lambda: None)
    monkeypatch.setattr("sys.argv", ["demo"])
    assert perform.perform(Demo, "a demo", "") == status
