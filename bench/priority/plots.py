# SPDX-License-Identifier: Apache-2.0
"""Pictures of the experiments: ratios beside the paper's, and latencies by load."""

from bench import picture, report

PAPER = "paper"
# What the paper reports, as a ratio: of the urgent p99 to that of the baseline.
PAPERS = {
    ("1", "none", "ideal"): 72,
    ("1", "ours", "ideal"): 72 * 0.015,
    ("2", "none", "optimum, simulated"): 62,
    ("5", "DARC", "none"): 0.3675,
    ("5", "ours", "none"): 0.015,
    ("6", "ours", "none"): 0.016,
    ("7, 1024 B", "LNS", "none"): 0.06,
    ("7, 1024 B", "ours", "none"): 0.06,
    ("7, 4096 B", "ours", "none"): 0.06,
    ("table 1", "good p99", "without"): 2.08 / 4.22,
    ("table 1", "good p50", "without"): 1.16 / 2.21,
    ("table 1", "bad p99", "without"): 6.25 / 6.02,
    ("table 1", "bad p50", "without"): 4.36 / 3.61,
}


def bar(row, figure, name, label=None):
    """What one bar shows."""
    base = row["baseline"]["name"]
    evidence = row.get("evidence", {})
    label = label or figure
    return {
        "name": f"{label if 'table' in label else 'figure ' + label}\n{name} / {base}",
        "value": row["ratio"],
        "low": evidence.get("low", row["ratio"]),
        "high": evidence.get("high", row["ratio"]),
        "paper": PAPERS.get((figure, name, base)),
    }


def ratios(made):
    """The bars of all figures, and of table 1."""
    for row in report.select(made, "urgent p99"):
        params = row["params"]
        figure, name = params["figure"], params.get("schedule", "none")
        if figure == "7":
            figure = f"7, {params['length']} B"
        shown = figure.partition(",")[0] in ("1", "2", "5", "6", "7")
        if not shown or name in ("swapped", "equal"):
            continue
        label = f"{figure}, {params['busy']} %" if "busy" in params else None
        label = f"{figure}, {params['pace']}" if "pace" in params else label
        yield bar(row, figure, name, label)
    for metric in ("p99", "p50"):
        for row in report.select(made, metric, figure="table 1", hook="link"):
            yield bar(row, "table 1", f"{row['params']['link']} {metric}")


def draw_ratios(path, title, bars):
    """Horizontal bars on a logarithmic scale, with intervals; the paper's as red marks."""
    with picture.mpl.rc_context(picture.STYLE | {"axes.grid.axis": "x"}):
        figure = picture.Figure(figsize=(7.2, 0.9 + 0.42 * len(bars)), layout="constrained")
        picture.FigureCanvasSVG(figure)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        axes = figure.subplots()
        places = range(len(bars))
        values = [one["value"] for one in bars]
        axes.barh(places, values, 0.6, color=picture.COLOURS[0], label="measured")
        reach = [
            [max(0, one["value"] - one["low"]) for one in bars],
            [max(0, one["high"] - one["value"]) for one in bars],
        ]
        thin = {"fmt": "none", "ecolor": picture.GREY, "elinewidth": 0.8, "capsize": 2}
        axes.errorbar(values, places, xerr=reach, **thin)
        known = [(one["paper"], at) for at, one in enumerate(bars) if one["paper"]]
        if known:
            xs, ys = zip(*known, strict=True)
            axes.plot(xs, ys, "D", color=picture.RED, markersize=5, label=PAPER, zorder=4)
        axes.set_xscale("log")
        axes.set_yticks(places, [one["name"] for one in bars], fontsize=8)
        axes.invert_yaxis()
        axes.set_xlabel("ratio of latencies: the 99th percentile of urgent requests; table 1")
        axes.margins(x=0.12)
        for at, value in zip(places, values, strict=True):
            axes.annotate(
                f"{value:.3g}",
                (value, at),
                xytext=(4, -9),
                textcoords="offset points",
                fontsize=7,
                color=picture.GREY,
            )
        figure.legend(loc="outside lower right", ncols=2, fontsize=8)
        picture.save(figure, path)


def by_load(made):
    """Rows of figure 6 as lines: each schedule's p99, and that of none, by load."""
    for row in report.select(made, "urgent p99", figure="6"):
        yield row | {"baseline": row["baseline"] if row["params"]["schedule"] == "ours" else None}


def draw(made, path):
    bars = list(ratios(made))
    if bars:
        draw_ratios(path, "priority: measured ratios beside the paper's", bars)
    lines = list(by_load(made))
    if lines:
        where = path.with_name(f"{path.stem}-long.svg")
        title = "priority: 99.5 % × 10 µs beside 0.5 % × 10 ms, which sleep (figure 6)"
        picture.lines(where, title, lines, "busy", ["schedule"], log=True)
    blocked = report.select(made, "urgent p99", figure="2")
    if blocked:
        where = path.with_name(f"{path.stem}-blocked.svg")
        title = "priority: the same without scheduling, and the optimum (figure 2)"
        picture.lines(where, title, blocked, "busy", log=True)
    waits = [
        row for row in report.select(made, figure="1") if row["metric"].startswith("urgent p99 ")
    ]
    if waits:
        where = path.with_name(f"{path.stem}-waits.svg")
        title = "priority: where urgent requests wait (figure 1)"
        renamed = [
            row
            | {
                "metric": "99 % wait less",
                "params": {
                    "schedule": row["params"]["schedule"],
                    "pace": row["params"]["pace"],
                    "where": row["metric"].removeprefix("urgent p99 "),
                },
            }
            for row in waits
        ]
        picture.bars(where, title, renamed, "schedule", ["where"], ["pace"])
