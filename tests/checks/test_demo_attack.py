# SPDX-License-Identifier: Apache-2.0
"""Verdicts of the attack demo: each load beside a flood, and open connections."""

from collections import Counter

import pytest

from tests.demo.attack import HEAD, Attack, Served
from tests.demo.show import Show
from tests.lab.clients import Load
from tests.lab.process import CommandFailed

ALL = {"answered": 1000, "planned": 1000, "p99_ms": 3, "failures": {}}
FEW = ALL | {"answered": 998}


class Traffic:
    def __init__(self, failures):
        self.failures = failures

    def step(self):
        return {"failures": self.failures}


class Steelyard:
    """Alternates between answering and failing."""

    def __init__(self, *errors):
        self.errors = list(errors)

    def cli(self, *words, **options):
        error = self.errors.pop(0)
        if error:
            raise error


@pytest.fixture
def demo():
    one = Attack.__new__(Attack)
    one.show, one.rows, one.missed, one.gone = Show(), [], [], 0
    one.traffic = Traffic({})
    one.recover = lambda: "at once"
    return one


def served(paced=ALL, host=ALL, failed=0, control=(0.1, 0.1)):
    return Served(paced, host, (load(failed), load(0)), list(control))


def load(failed):
    return Load(Counter(s1=1000), {"timeout": failed}, 10.0)


@pytest.mark.parametrize(
    ("during", "missed"),
    (
        (served(), None),
        (served(paced=FEW), "99.80 % of requests succeed"),
        (served(failed=3), "of requests succeed"),
        (served(host=FEW), "99.80 % of requests to the host succeed"),
        (served(control=(0.1, None)), "50.00 % of questions to the control socket succeed"),
    ),
)
def test_missed_goals_are_reported(demo, during, missed):
    demo.judge("SYN", served(), during, "500 k/s", "0.00 %")
    assert len(demo.missed) == (missed is not None)
    assert missed is None or missed in demo.missed[0]
    assert len(demo.rows[0]) == len(HEAD)


def test_lost_open_connection_is_reported(demo):
    demo.traffic.failures = {"reset": 1}
    demo.judge("SYN", served(), served(), "500 k/s", "0.00 %")
    assert demo.missed == ["SYN: 1 open connections or flows lost"]


def test_slow_control_socket_is_reported(demo, monkeypatch):
    monkeypatch.setattr("time.sleep", lambda seconds: None)
    demo.steelyard = Steelyard(None, CommandFailed("the agent is gone"))
    assert demo.ask() is not None
    assert demo.ask() is None
