# SPDX-License-Identifier: Apache-2.0
"""The experiments with priorities: intervals, rounds, simulation, and pictures."""

import pytest

from bench import headline, report
from bench.priority import apps, figures, plots


def test_interval_of_few_ratios_is_students():
    """Of the logarithms: those of 0.5, 1, 2 have mean 0 and standard error ln 2 / sqrt 3."""
    low, high = figures.interval([0.5, 1, 2])
    assert low == pytest.approx(2 ** (-4.303 / 3**0.5))
    assert high == pytest.approx(1 / low)
    assert figures.interval([1, 1]) is None
    assert figures.interval([1, 0, 1]) is None


def test_each_round_has_all_settings_in_another_order():
    asked = []
    found = figures.in_turn(
        {"a": 1, "b": 2, "c": 3}, 4, lambda name, variant: asked.append(name) or variant
    )
    assert "".join(asked) == "abc" + "bca" + "cab" + "abc"
    assert found == {"a": [1] * 4, "b": [2] * 4, "c": [3] * 4}


def test_rows_have_the_interval_of_their_rounds():
    runs = list(figures.pairs({"figure": "5"}, "urgent p99", "none", [1, 2, 4], [2, 2, 2]))
    (row,) = report.rows(runs)
    assert row["ratio"] == 1
    assert (row["evidence"]["low"], row["evidence"]["high"]) == figures.interval([0.5, 1, 2])


def test_optimal_schedule_hardly_waits():
    """Short requests that preempt long ones only wait for each other."""
    cost = 2.0
    light = figures.optimum(2_000, cost, quiet_us=20, count=50_000)
    heavy = figures.optimum(50_000, cost, quiet_us=20, count=50_000)
    assert 30 <= light < 45
    assert light < heavy < 120


def test_reserved_core_beats_two_shared_cores():
    for ratio in (
        figures.apart(8_000, 4.0, 2, count=30_000),
        figures.apart(1_000, 4.0, 10, count=30_000),
        figures.together(8_000, 4.0, count=30_000),
    ):
        assert ratio["ours"] < 0.016
        assert 0.2 < ratio["LNS"] <= 1.05


def test_reserved_core_gets_all_short_requests():
    """With two cores, it gets twice its former short requests; with ten, hardly more."""
    two = figures.apart(8_000, 4.0, 2, count=60_000)
    ten = figures.apart(8_000, 4.0, 10, count=60_000)
    assert ten["LNS"] == two["LNS"]
    assert ten["ours"] < two["ours"]


def test_line_rate_follows_from_the_last_wait():
    seen = {
        "classes": [
            {"name": "other", "latency_us": {"p99": 15_000}, "since_sent_us": {"p99": 10_000}}
        ]
    }
    assert figures.line_rate(seen) == pytest.approx(0.99 * figures.BURST / 5e-3)


class BurstBed:
    """Records its settings. The last request of a burst waits 2 ms."""

    def __init__(self):
        self.asked = []

    def ask(self, setting, **load):
        urgent, other = load["class"]
        self.asked.append((setting["schedule"], setting["driver"], other))
        times = {"p99": 10, "p50": 5}
        names = {urgent.split(",")[0]: 0, other.split(",")[0]: 1980}
        parts = {f"{part}_us": times for part in figures.PARTS}
        return {
            "classes": [
                {"name": name, "latency_us": {"p99": 10 + late}, "since_sent_us": times}
                for name, late in names.items()
            ],
            "errors": {},
            "server": {"classes": [parts, parts]},
        }


def test_ideal_runs_in_each_round():
    bed = BurstBed()
    made = report.rows(figures.in_bursts(bed, 4, 1))
    first, *rounds = bed.asked
    all_of_them = figures.OWN.asked()[1]
    assert first == ("ours", 0, all_of_them)  # without a driver hook: the line's rate
    others = f"{all_of_them},unsent=1000ns"
    variants = {("ours", 0, all_of_them), ("darc", 0, all_of_them), ("ours", 1, all_of_them)}
    variants.add(("ours", 0, others))
    for at in range(0, 16, 4):
        assert set(rounds[at : at + 4]) == variants
    (row, *_) = report.select(made, "urgent p99", figure="1", schedule="ours")
    assert row["runs"] == 4 and row["ratio"] == 1
    assert row["evidence"]["line_rate"] == pytest.approx(1e6)


class QuickBed:
    """Answers every request at once, in the same way."""

    def ask(self, setting, **load):
        took = {"p99": 10, "p50": 5}
        names = ("urgent", "other")
        classes = [{"name": name, "latency_us": took, "since_sent_us": took} for name in names]
        return {"classes": classes, "rate": 1e5, "errors": {}}


def test_figures_include_wrong_hooks(monkeypatch):
    """Inverted and equal hooks: figure 6 at the highest load."""
    monkeypatch.setattr(figures, "simulated", lambda *_: iter(()))
    monkeypatch.setattr(figures, "optimum", lambda *_: 1)
    wrong = {"swapped", "equal"}
    made = report.rows(figures.figure6(QuickBed(), 2, 1, (25, 75)))
    for busy, expected in ((25, set()), (75, wrong)):
        rows = report.select(made, "urgent p99", figure="6", busy=busy)
        assert {row["params"]["schedule"] for row in rows} == {"LNS", "ours"} | expected
    made = report.rows(figures.figure7(QuickBed(), 2, 1))
    for length in (1024, 4096):
        rows = report.select(made, "urgent p99", figure="7", length=length)
        assert {row["params"]["schedule"] for row in rows} == {"LNS", "DARC", "ours"} | wrong


@pytest.mark.parametrize(
    ("hooks", "took", "outcome"),
    [
        ("swapped", 19, "met"),
        ("swapped", 11, "NOT MET"),
        ("equal", 11, "met"),
        ("equal", 15, "NOT MET"),
        ("equal", 5, "NOT MET"),
    ],
)
def test_controls_are_judged(hooks, took, outcome):
    params = {"figure": "controls", "hooks": hooks}
    made = report.rows(figures.pairs(params, "urgent p50", "none", [took] * 2, [10, 10]))
    (said,) = headline.goals("priority", made)
    assert f": {outcome} — " in said


def answers(took_us):
    """Results of both groups of clients."""
    one = {"classes": [{"latency_us": {"p99": took_us, "p50": took_us / 2}}], "errors": {"a": 1}}
    return {link: one for link in apps.LINKS}


def test_table_1_has_ratios_and_experience():
    made = report.rows(apps.table1({"none": [answers(4.22e6)], "link": [answers(2.08e6)]}))
    (p99,) = report.select(made, "p99", link="good", hook="link")
    assert p99["ratio"] == pytest.approx(2.08 / 4.22)
    assert p99["evidence"]["lost"] == 2
    (content,) = report.select(made, "QoE of the p99", link="bad", hook="link")
    assert content["median"] == pytest.approx(0.96)


def rows():
    runs = []
    for name in ("DARC", "ours"):
        params = {"figure": "5", "schedule": name, "pace": "slow motion"}
        runs += figures.pairs(params, "urgent p99", "none", [10, 20, 30], [100, 200, 300])
    for load in figures.LOADS:
        params = {"figure": "2", "busy": load}
        runs += figures.pairs(params, "urgent p99", "optimum, simulated", [50, 60], [1, 1])
        for name in ("LNS", "ours"):
            params = {"figure": "6", "schedule": name, "busy": load}
            runs += figures.pairs(params, "urgent p99", "none", [10, 20], [100, 200])
    for name in ("none", "ours"):
        for part in ("before TCP", "before application", "service"):
            for pace in (figures.OWN, figures.SLOW):
                params = {"figure": "1", "schedule": name, "pace": pace.name}
                runs.append(figures.run(params, f"urgent p99 {part}", 5))
    runs += apps.table1({"none": [answers(4.22e6)], "link": [answers(2.08e6)]})
    return report.rows(runs)


def test_pictures_are_drawn(tmp_path):
    path = tmp_path / "priority.svg"
    plots.draw(rows(), path)
    for name in ("priority", "priority-long", "priority-blocked", "priority-waits"):
        assert (tmp_path / f"{name}.svg").exists()
        assert (tmp_path / f"{name}.png").exists()
    text = path.read_text()
    assert plots.PAPER in text
    assert "ours / none" in text
    assert "figure 6, 75 %" in text
    assert "figure 5, slow motion" in text
    assert "good p99 / without" in text
    assert "optimum, simulated" in (tmp_path / "priority-blocked.svg").read_text()
    plots.draw([], tmp_path / "nothing.svg")
    assert not (tmp_path / "nothing.svg").exists()
