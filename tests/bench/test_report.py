# SPDX-License-Identifier: Apache-2.0
"""From runs to rows: computation, validation, formatting."""

import math

import pytest

from bench import report


def run(value, baseline=None, stick="lines", **params):
    made = {"bench": "b", "params": params, "metric": "cost", "unit": "ns", "value": value}
    if baseline is not None:
        made["baseline"] = {"name": stick, "value": baseline}
    return made


def test_row_has_median_and_extremes():
    (row,) = report.rows([run(3), run(10), run(5), run(4)])
    assert (row["median"], row["min"], row["max"], row["runs"]) == (4.5, 3, 10, 4)
    assert row["baseline"] is None and row["ratio"] is None


def test_ratio_is_the_median_of_pairs():
    # The second pair was measured while the machine was twice as slow.
    (row,) = report.rows([run(10, 5), run(24, 12), run(11, 5)])
    assert row["ratio"] == 2
    assert row["baseline"] == {"name": "lines", "median": 5}


def test_cells_metrics_and_baselines_make_their_own_rows():
    runs = [
        run(1, 1, sessions=1, mode="nat"),
        run(2, 1, mode="nat", sessions=1),  # the order of parameters is irrelevant
        run(1, 1, stick="other", sessions=1, mode="nat"),
        run(1, sessions=1, mode="nat"),
        run(1, 1, sessions=2, mode="nat"),
        run(1, 1, sessions=1, mode="nat") | {"metric": "rate"},
    ]
    assert [row["runs"] for row in report.rows(runs)] == [2, 1, 1, 1, 1]


@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf, None, "7", True])
def test_invalid_values_are_refused(value):
    with pytest.raises(report.Malformed):
        report.check(run(value, 1))
    with pytest.raises(report.Malformed):
        report.check(run(1) | {"baseline": {"name": "lines", "value": value}})
    if value != 0:
        with pytest.raises(report.Malformed):
            report.check(run(value))


def test_uncompared_values_may_be_zero():
    (row,) = report.rows([run(0), run(0), run(0.5)])
    assert (row["median"], row["ratio"]) == (0, None)
    assert report.table([row]).splitlines()[1].split()[2] == "0"


def test_evidence_is_kept_as_medians():
    seen = [run(1) | {"evidence": {"busy": busy, "full": 0}} for busy in (0.5, 1, 0.9)]
    (row,) = report.rows(seen)
    assert row["evidence"] == {"busy": 0.9, "full": 0}
    assert "evidence" not in report.rows([run(1)])[0]
    with pytest.raises(report.Malformed):
        report.check(run(1) | {"evidence": {"busy": None}})


@pytest.mark.parametrize("field", ["bench", "params", "metric", "unit", "value"])
def test_incomplete_run_is_refused(field):
    broken = run(1, 1)
    del broken[field]
    with pytest.raises(report.Malformed):
        report.rows([broken])


def test_baseline_without_name_is_refused():
    with pytest.raises(report.Malformed):
        report.check(run(1) | {"baseline": {"value": 1}})


def test_written_rows_are_read_back(tmp_path):
    made = report.rows([run(1.5, 2, sessions=1000), run(2, sessions=5)])
    file = tmp_path / "build/b.json"
    report.write(file, made)
    assert report.read(file) == made
    report.write(file, [])
    assert report.read(file) == []


def test_rows_are_selected_by_metric_and_parameters():
    made = report.rows([run(1, a=1, b=2), run(2, a=1, b=3), run(3, a=2, b=2)])
    assert [row["median"] for row in report.select(made, "cost", a=1)] == [1, 2]
    assert [row["median"] for row in report.select(made, b=2)] == [1, 3]
    assert report.select(made, "rate") == []


def test_numbers_are_formatted_for_readers():
    values = (123456.7, 999.4, 42.123, 1.2345, 0.01234)
    assert [report.number(v) for v in values] == ["123,457", "999", "42.1", "1.23", "0.0123"]
    parameters = (1, 64, 1000, 1518, 1_500_000, 200_000_000, True, "nat", 0.5)
    assert [report.amount(p) for p in parameters] == [
        *("1", "64", "1 k", "1518", "1.5 M", "200 M", "True", "nat", "0.5"),
    ]


def test_table_is_aligned_and_factors_out_shared_parameters():
    made = report.rows([run(1234.5, 617.25, mode="nat", n=1), run(5, mode="nat", n=10_000_000)])
    assert report.table(made).splitlines() == [
        "mode nat",
        "   n            median    min    max  runs  baseline         ratio  95 %",
        "   1  cost, ns   1,234  1,234  1,234     1       617  lines   2.00",
        "10 M  cost, ns    5.00   5.00   5.00     1",
    ]


def test_ratio_has_an_interval_from_six_pairs_on():
    pairs = [run(value, 100) for value in (103, 101, 99, 102, 90, 104)]
    (row,) = report.rows(pairs)
    # All six are on one side of the true median in 2 of 64 cases; at most one is in 14 of 64.
    assert (row["evidence"]["low"], row["evidence"]["high"]) == (0.9, 1.04)
    assert report.table([row]).splitlines()[1].endswith("  1.02  0.9–1.04")
    assert "evidence" not in report.rows(pairs[:5])[0]
    assert "evidence" not in report.rows([run(value) for value in range(1, 9)])[0]


@pytest.mark.parametrize(("count", "order"), [(6, 1), (8, 1), (9, 2), (20, 6), (100, 40)])
def test_interval_uses_order_statistics(count, order):
    # As in tables of the sign test.
    values = list(range(1, count + 1))
    assert report.interval(values[::-1]) == (order, count + 1 - order)


def test_interval_is_stored_beside_other_evidence():
    pairs = [run(1, 1) | {"evidence": {"busy": 0.5}}] * 6
    assert report.rows(pairs)[0]["evidence"] == {"busy": 0.5, "low": 1, "high": 1}


def test_empty_table_says_so():
    assert report.table([]) == "nothing was measured\n"
