# SPDX-License-Identifier: Apache-2.0
"""The command: which benchmarks run, what is written, what failures leave."""

import json
import sys
from types import SimpleNamespace

import pytest

from bench import __main__ as bench
from bench import machine


def run(value):
    return {"bench": "b", "params": {}, "metric": "cost", "unit": "ns", "value": value}


def good(quick):
    yield run(1)
    if not quick:
        yield run(3)


def breaks(quick):
    yield run(1)
    raise machine.Failed("the cable is out")


@pytest.fixture
def call(tmp_path, monkeypatch):
    """Calls the command with test benchmarks; its results are in a temporary folder."""
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "FULL", tmp_path / "full")
    monkeypatch.setattr(bench.signal, "signal", lambda *_: None)
    monkeypatch.setattr(bench.os, "geteuid", lambda: 0)

    def call(*arguments, **modules):
        monkeypatch.setattr(bench, "names", lambda: list(modules))
        for name, rows in modules.items():
            module = SimpleNamespace(
                TITLE=f"measures {name}",
                MINUTES=7,
                rows=rows,
                smoke=lambda: (run(7) for _ in range(1)),
                plot=lambda rows, path: path.write_text(f"{len(rows)} rows\n"),
            )
            monkeypatch.setitem(sys.modules, f"bench.run_{name}", module)
        monkeypatch.setattr(sys, "argv", ["bench", *arguments])
        return bench.main()

    return call


def test_quick_run_keeps_the_last_full_run(call, tmp_path):
    assert call(alpha=good) == 0
    assert call("--quick", alpha=good) == 0
    medians = [
        json.loads((tmp_path / f).read_text())[0]["median"]
        for f in ("alpha.json", "full/alpha.json")
    ]
    assert medians == [1, 2]
    assert (tmp_path / "alpha.svg").read_text() == (tmp_path / "full/alpha.svg").read_text()
    quick, full = (
        json.loads((tmp_path / f).read_text())
        for f in ("alpha.origin.json", "full/alpha.origin.json")
    )
    assert full["machine"]["cores"] >= 1 and quick["quick"] and not full["quick"]


def test_failure_does_not_stop_other_benchmarks(call, tmp_path, capsys):
    (tmp_path / "alpha.json").write_text("of an earlier run")
    assert call(alpha=breaks, beta=good) == 1
    assert not (tmp_path / "alpha.json").exists() and (tmp_path / "beta.json").exists()
    said = capsys.readouterr().out
    assert "✗  alpha: the cable is out" in said and said.endswith("failed: alpha\n")


@pytest.mark.parametrize("runs", [[], [run(-1)], [{}]])
def test_empty_and_invalid_results_are_failures(call, tmp_path, runs):
    assert call(alpha=lambda quick: (yield from runs)) == 1
    assert list(tmp_path.glob("alpha*")) == []


def test_only_named_benchmarks_run(call, tmp_path):
    assert call("beta", alpha=breaks, beta=good) == 0
    with pytest.raises(SystemExit):
        call("gamma", alpha=good)


def test_benchmarks_need_root(call, monkeypatch, capsys):
    monkeypatch.setattr(bench.os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit):
        call(alpha=good)
    assert "run them as root" in capsys.readouterr().err
    assert call("--smoke", alpha=good) == 0


def test_second_interrupt_does_not_interrupt_the_cleanup(monkeypatch):
    set_to = {}
    monkeypatch.setattr(bench.signal, "signal", set_to.__setitem__)
    with pytest.raises(KeyboardInterrupt):
        bench.interrupt(bench.signal.SIGTERM, None)
    assert set(set_to) == set(bench.ENDS)
    assert set(set_to.values()) == {bench.signal.SIG_IGN}


def test_smoke_run_writes_nothing(call, tmp_path):
    assert call("--smoke", alpha=breaks) == 0
    assert list(tmp_path.iterdir()) == []


def test_interrupt_ends_the_run_after_cleanup(call, tmp_path):
    done = []

    def interrupted(quick):
        try:
            yield run(1)
            raise KeyboardInterrupt
        finally:
            done.append("cleaned up")

    assert call(alpha=interrupted, beta=good) == 130
    assert done == ["cleaned up"] and list(tmp_path.glob("*")) == []


def test_all_benchmarks_define_the_interface():
    for name in bench.names():
        module = __import__(f"bench.run_{name}", fromlist=["rows"])
        assert module.TITLE and callable(module.rows) and callable(module.smoke)


def test_full_run_takes_at_most_two_and_a_half_hours():
    minutes = [__import__(f"bench.run_{n}", fromlist=["MINUTES"]).MINUTES for n in bench.names()]
    assert min(minutes) > 0 and sum(minutes) <= 150


def test_full_runs_are_resumed_at_the_same_commit(call, monkeypatch, capsys):
    monkeypatch.setattr(bench.origin, "commit", lambda: "c1")
    assert call(alpha=good, beta=breaks) == 1
    assert "Some 14 minutes: alpha 7, beta 7." in capsys.readouterr().out
    assert call("--resume", alpha=breaks, beta=good) == 0
    assert "measures alpha" not in capsys.readouterr().out
    for other in ("c2", "c1-dirty"):
        monkeypatch.setattr(bench.origin, "commit", lambda other=other: other)
        assert call("--resume", alpha=breaks, beta=good) == 1
