# SPDX-License-Identifier: Apache-2.0
"""From full runs to README: which figures are shown, left out, and judged."""

import json

import pytest

from bench import __main__ as bench
from bench import docs, goals, headline, origin, report


def runs(name, metric, unit, values, params, baseline=None):
    for value in values:
        run = {"bench": name, "params": params, "metric": metric, "unit": unit, "value": value}
        if baseline:
            run["baseline"] = {"name": baseline[0], "value": baseline[1]}
        yield run


def fastpath(sessions, *values):
    params = {"mode": "fnat", "family": "4", "sessions": sessions}
    params |= {"flows": "uniform", "direction": "both"}
    return report.rows(runs("fastpath", "cost", "ns/packet", values, params, ("two lines", 20)))


def memory(sessions, value):
    params = {"sessions": sessions, "family": "IPv4"}
    return report.rows(runs("density", "memory", "bytes/session", [value], params, ("fields", 60)))


def test_fastest_run_is_judged_where_it_counts():
    table = headline.table(fastpath(1000, 29, 33, 35) + fastpath(1_000_000, 46, 47, 48))
    assert table.splitlines()[2:] == [
        "| a packet of an established FNAT session, IPv4, 1 k sessions, one core "
        "| fastest run 29.0 ns, median 33.0 | 20.0 ns/packet: two lines | 1.65 × | ≤ 30 ns | yes |",
        "| a packet of an established FNAT session, IPv4, 1 M sessions, one core "
        "| fastest run 46.0 ns, median 47.0 | 20.0 ns/packet: two lines | 2.35 × | ≤ 45 ns "
        "| **no** |",
    ]


def test_terminal_judges_goals_like_the_table():
    made = fastpath(1000, 29, 33, 35) + fastpath(10_000_000, 46, 47, 48)
    assert headline.goals("fastpath", made) == [
        "   goal ≤ 30 ns: fastest run 29.0 ns, median 33.0: met — a packet of an established FNAT "
        "session, IPv4, 1 k sessions, one core",
        "   goal ≤ 2.0 × baseline: 2.35 ×: NOT MET — a packet of an established FNAT session, "
        "IPv4, 10 M sessions, one core",
    ]
    assert headline.goals("density", made) == []


@pytest.mark.parametrize(
    ("costs", "outcome", "met"),
    [
        ([101, 102, 101.5, 102, 101, 102], "1.018 × (1.01–1.02): met", "yes"),
        ([101, 102, 101.5, 102, 101, 104], "1.018 × (1.01–1.04): not shown", "not shown"),
        ([104, 105, 104, 106, 104, 104], "1.04 × (1.04–1.06): NOT MET", "**no**"),
    ],
)
def test_goal_inside_the_interval_is_undecided(costs, outcome, met):
    params = {"with": "expiry", "rate": "9 sessions/s", "sessions": 1000}
    made = report.rows(runs("overhead", "cost", "ns/packet", costs, params, ("without", 100)))
    (line,) = headline.goals("overhead", made)
    assert outcome in line
    assert headline.table(made).splitlines()[2].endswith(f" ≤ 1.03 × | {met} |")


def test_largest_table_stands_for_density():
    table = headline.table(memory(20_000_000, 61.5) + memory(200_000_000, 64.5) + memory(4, 99))
    (line,) = table.splitlines()[2:]
    assert line.startswith("| memory of an IPv4 session, 200 M sessions | 64.5 bytes/session |")
    assert line.endswith("| ≤ 64 bytes | **no** |")


def test_ratio_just_below_its_goal_is_shown_below():
    params = {"workers": 2, "arrival": "owner", "family": "4"}
    made = report.rows(runs("scale", "rate", "Mpps", [18.97], params, ("one worker", 10)))
    assert "| 10.0 Mpps: one worker | 1.897 × | ≥ 1.9 × one worker | **no** |" in headline.table(
        made
    )


@pytest.mark.parametrize(
    ("rate", "ceiling", "met"), ((420, 4.2, "yes"), (380, 4.2, "not shown"), (380, 5, "**no**"))
)
def test_stack_goal_is_capped_by_frames_alone(rate, ceiling, met):
    params = {"connections": "keep-alive", "kernel": "one core"}
    made = runs("stack", "echoes", "1/s", [rate], params, ("kernel", 100))
    rows = report.rows(one | {"evidence": {"ceiling": ceiling}} for one in made)
    assert headline.table(rows).splitlines()[2].endswith(f" | {met} |")


def test_no_results_make_no_table():
    assert headline.table([]) == ""


@pytest.mark.parametrize("wanted", goals.HEADLINES, ids=lambda h: f"{h.bench}-{h.metric}")
def test_each_headline_can_be_shown(wanted):
    params = {
        "sessions": 1,
        "services": 1,
        "fill": "90 %",
        "rate": "9/s",
        "busy": 75,
        **wanted.params,
    }
    stick = (wanted.baseline or "stick", 2)
    (row,) = report.rows(runs(wanted.bench, wanted.metric, "ns", [1], params, stick))
    assert headline.find(wanted, [row]) is row
    assert headline.line(wanted, row).count("|") == 7


def test_text_around_the_markers_is_kept():
    text = f"above\n{docs.BEGIN}old\n{docs.END}below\n"
    assert docs.replace(text, "new\n") == f"above\n{docs.BEGIN}new\n{docs.END}below\n"
    with pytest.raises(SystemExit):
        docs.replace("no markers\n", "new\n")


@pytest.fixture
def places(tmp_path, monkeypatch):
    monkeypatch.setattr(bench, "RESULTS", tmp_path)
    monkeypatch.setattr(bench, "FULL", tmp_path / "full")
    monkeypatch.setattr(docs, "README", tmp_path / "README.md")
    monkeypatch.setattr(docs, "FIGURES", tmp_path / "figures")
    monkeypatch.setattr(origin, "is_older", lambda measured: measured["commit"] != NOW)
    (tmp_path / "full").mkdir()
    docs.README.write_text(f"# Steelyard\n{docs.BEGIN}{docs.END}the end\n")
    return tmp_path


NOW, BEFORE = "a" * 40, "b" * 40
MACHINE = {"processor": "abacus", "cores": 2, "memory_gb": 24, "kernel": "6.1"}


def measured(folder, name, made, commit=NOW):
    report.write(folder / f"{name}.json", made)
    quick = folder.name != "full"
    of = {"commit": commit, "date": "2026-12-01", "quick": quick, "machine": MACHINE}
    (folder / f"{name}.origin.json").write_text(json.dumps(of))


def test_readme_and_pages_are_written(places):
    full = places / "full"
    measured(full, "density", memory(20_000_000, 61.5))
    for name in ("density.svg", "density-look-up.svg"):
        (full / name).write_text("<svg/>\n")
    (places / "figures").mkdir()
    (places / "figures/gone.svg").write_text("of a benchmark that is no more")
    (places / "figures/density-findings.md").write_text("written by people")

    assert docs.main(quick=False) == 0
    readme = docs.README.read_text()
    assert readme.count("| 61.5 bytes/session |") == 1
    assert readme.startswith("# Steelyard\n") and readme.endswith("the end\n")
    page = (places / "figures/density.md").read_text()
    assert "**Full run** of commit aaaaaaaaaaaa, 2026-12-01, on abacus, 2 cores, 24 GB" in page
    assert "`make bench BENCH=density`," in page
    assert page.index("![density](density.svg)") < page.rindex("61.5")
    assert "![density-look-up](density-look-up.svg)" in page
    index = (places / "figures/README.md").read_text()
    assert "](density.md)" in index and "](density-findings.md)" in index
    assert {f.name for f in (places / "figures").iterdir()} == {
        *("README.md", "density.md", "density-findings.md", "density.svg", "density-look-up.svg"),
    }

    assert docs.main(quick=False) == 0  # a second time, over its own output
    assert docs.README.read_text() == readme


def test_readme_has_the_main_figures_and_the_index_all(places):
    measured(places / "full", "fastpath", fastpath(1000, 29, 33, 35) + fastpath(1_000_000, 9, 9, 9))
    assert docs.main(quick=False) == 0
    readme, index = docs.README.read_text(), (places / "figures/README.md").read_text()
    assert "1 M sessions" in readme and "1 k sessions" not in readme
    assert "1 M sessions" in index and "1 k sessions" in index


def test_each_main_figure_is_one_row_of_a_page():
    rows = [row for text in docs.pages().values() for row in docs.goals(text)]
    for start in docs.MAIN:
        assert sum(row.startswith(f"| {start}") for row in rows) == 1, start


def test_unmeasured_pages_are_kept(places):
    full = places / "full"
    measured(full, "density", memory(20_000_000, 61.5))
    (full / "density.svg").write_text("<svg/>\n")
    assert docs.main(quick=False) == 0
    page = (places / "figures/density.md").read_text()
    (full / "density.origin.json").unlink()
    measured(full, "fastpath", fastpath(1_000_000, 29, 33, 35))
    assert docs.main(quick=False) == 0
    assert (places / "figures/density.md").read_text() == page
    assert (places / "figures/density.svg").exists()
    readme = docs.README.read_text()
    assert readme.index("fastest run 29.0 ns") < readme.index("61.5 bytes/session")


def test_pages_of_older_code_say_so(places, monkeypatch):
    measured(places / "full", "density", memory(20_000_000, 61.5), BEFORE)
    measured(places / "full", "fastpath", fastpath(1_000_000, 29, 33, 35))
    assert docs.main(quick=False) == 0
    old, new = ((places / f"figures/{n}.md").read_text() for n in ("density", "fastpath"))
    assert origin.OLDER in old and origin.OLDER not in new
    assert "Measured before the code's latest changes: density." in docs.README.read_text()
    monkeypatch.setattr(origin, "is_older", lambda _: True)  # the code changes
    assert origin.OLDER in origin.renewed("fastpath", new)
    assert origin.read(new)["commit"] == NOW


def test_each_page_begins_with_its_origin():
    for name, text in docs.pages().items():
        of = origin.read(text)
        written = [origin.paragraph(name, of, older) for older in (False, True)]
        assert text.split("\n\n")[1] + "\n" in written, name


def test_unknown_and_changed_commits_are_older():
    head = origin.commit().partition("-")[0]
    assert not origin.is_older({"commit": head})
    for unknown in ("", "c" * 40, head + "-dirty"):
        assert origin.is_older({"commit": unknown})


def test_quick_runs_are_labelled(places):
    measured(places, "density", memory(20_000_000, 61.5))
    assert docs.main(quick=True) == 0
    page = (places / "figures/density.md").read_text()
    assert "`make bench BENCH=density QUICK=1`" in page
    assert "Measured by quick runs, with fewer repetitions: all figures." in docs.README.read_text()
    assert (
        "Measured by quick runs, with fewer repetitions: all figures."
        in (places / "figures/README.md").read_text()
    )


def test_readme_labels_only_quick_pages(places):
    measured(places, "density", memory(20_000_000, 61.5))
    assert docs.main(quick=True) == 0
    measured(places / "full", "fastpath", fastpath(1000, 29, 33, 35))
    assert docs.main(quick=False) == 0
    assert "Measured by quick runs, with fewer repetitions: density." in docs.README.read_text()
    measured(places / "full", "density", memory(20_000_000, 61.5))
    assert docs.main(quick=False) == 0
    assert "quick runs" not in docs.README.read_text()


def test_without_a_full_run_nothing_changes(places):
    before = docs.README.read_text()
    assert docs.main(quick=False) == 1
    assert docs.README.read_text() == before and not docs.FIGURES.exists()
