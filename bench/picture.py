# SPDX-License-Identifier: Apache-2.0
"""Rows as pictures: medians with their extremes, the baseline beside them, goals as marks.

The same rows give the same SVG, byte for byte, so a committed picture changes only with a figure.
Lines are for an ordered parameter, bars for an unordered one.
"""

from statistics import median

import matplotlib as mpl
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from bench import report

# Distinguishable for colour-blind readers and in print (Okabe and Ito).
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000")
MARKS = "os^Dv<>"
DASHES = ("--", ":", "-.")
GREY, RED = "#444444", "#c00000"
# Parameters whose names are not good enough for an axis.
AXES = {
    "load": "load, % of the forwarder's PDR",
    "busy": "load, % of what the server can do",
    "concurrent": "connections under way at a time",
    "sessions": "live sessions",
    "with": "task beside the packets",
    "flood": "SYNs/s from forged sources",
}
STYLE = {
    "svg.hashsalt": "steelyard",
    "svg.fonttype": "none",  # text stays text
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "grid.color": "#dddddd",
    "axes.axisbelow": True,
    "legend.frameon": False,
}


def lines(path, title, made, x, series=(), panels=(), goals=None, log=False):
    """One line for each value of the parameters `series`, one diagram for each of `panels`;
    values of x at equal distances, whatever lies between them. goals: position on x, and the
    goal. log: a logarithmic scale."""

    dashes = dashed(made)

    def draw(axes, rows):
        places = sorted({row["params"][x] for row in rows})
        for i, (label, group) in enumerate(split(rows, series)):
            group.sort(key=lambda row: row["params"][x])
            axes.errorbar(
                [places.index(row["params"][x]) for row in group],
                [row["median"] for row in group],
                yerr=extremes(group),
                label=label,
                color=COLOURS[i % len(COLOURS)],
                marker=MARKS[i % len(MARKS)],
                markersize=4,
                linewidth=1.4,
                elinewidth=0.8,
                capsize=2,
            )
        for name, points in baselines(rows, x):
            at = [places.index(place) for place, _ in points]
            heights = [height for _, height in points]
            axes.plot(at, heights, dashes[name], color=GREY, label=name, marker=".")
        finish(axes, places, x, goals)

    diagram(path, title, made, panels, goals, draw, log)


def bars(path, title, made, x, series=(), panels=(), goals=None):
    """Like lines(), for unordered values of x."""

    dashes = dashed(made)

    def draw(axes, rows):
        places = list(dict.fromkeys(row["params"][x] for row in rows))
        groups = split(rows, series)
        width = 0.8 / len(groups)
        for i, (label, group) in enumerate(groups):
            at = [places.index(row["params"][x]) + (i + 0.5) * width - 0.4 for row in group]
            medians = [row["median"] for row in group]
            drawn = axes.bar(
                at,
                medians,
                width * 0.9,
                label=label,
                color=COLOURS[i % len(COLOURS)],
            )
            thin = {"fmt": "none", "ecolor": GREY, "elinewidth": 0.8, "capsize": 2}
            axes.errorbar(at, medians, yerr=extremes(group), **thin)
            axes.bar_label(
                drawn,
                [report.number(value) for value in medians],
                fontsize=6 if len(rows) > 12 else 8,
                padding=2,
                bbox={"facecolor": "white", "edgecolor": "none", "pad": 0.5},
            )
            for place, row in zip(at, group, strict=True):
                if row["baseline"]:
                    name, height = row["baseline"]["name"], row["baseline"]["median"]
                    ends = (place - width / 2, place + width / 2)
                    axes.hlines(height, *ends, GREY, dashes[name], label=name)
        finish(axes, places, x, goals)

    diagram(path, title, made, panels, goals, draw)


# ---- shared parts --------------------------------------------------------------------------------


def named(name, value):
    """A value as a label; one like "4" gets its parameter's name."""
    bare = isinstance(value, str) and value.isdigit()
    return f"{name} {value}" if bare else report.amount(value)


def dashed(made):
    """Draws each baseline's line, the same in all diagrams of a picture."""
    names = dict.fromkeys(row["baseline"]["name"] for row in made if row["baseline"])
    return {name: DASHES[i % len(DASHES)] for i, name in enumerate(names)}


def split(made, names):
    """Rows grouped by the values of these parameters, in order of appearance, with a label."""
    groups = {}
    for row in made:
        values = [named(name, row["params"][name]) for name in names if name in row["params"]]
        groups.setdefault(" ".join(values) or "measured", []).append(row)
    return list(groups.items())


def finish(axes, places, x, goals):
    for at, place in enumerate(places):
        if goals and place in goals:
            axes.hlines(
                goals[place], at - 0.3, at + 0.3, RED, linewidth=1.6, label="goal", zorder=3
            )
    axes.set_xticks(range(len(places)), [report.amount(place) for place in places])
    axes.set_xlim(-0.5, len(places) - 0.5)
    axes.set_xlabel(AXES.get(x, x))


def extremes(rows):
    return [
        [row["median"] - row["min"] for row in rows],
        [row["max"] - row["median"] for row in rows],
    ]


def baselines(made, x):
    """Each baseline's points: the median of its values beside all rows at a place."""
    found = {}
    for row in made:
        if row["baseline"]:
            place = found.setdefault(row["baseline"]["name"], {})
            place.setdefault(row["params"][x], []).append(row["baseline"]["median"])
    return [
        (name, sorted((at, median(values)) for at, values in places.items()))
        for name, places in found.items()
    ]


def heights(made, goals):
    """Values that must be fully visible. Extremes need not be: of many runs, one was always
    disturbed."""
    yield from (row["median"] for row in made)
    yield from (row["baseline"]["median"] for row in made if row["baseline"])
    yield from (goals or {}).values()


def diagram(path, title, made, panels, goals, draw, log=False):
    """The frame around diagrams of one metric, side by side on one scale."""
    with mpl.rc_context(STYLE):
        parts = split(made, panels)
        figure = Figure(figsize=(max(7.2, 3.4 * len(parts)), 3.6), layout="constrained")
        FigureCanvasSVG(figure)
        figure.suptitle(title, fontsize=10, x=0.01, ha="left")
        row = figure.subplots(1, len(parts), sharey=True, squeeze=False)[0]
        for axes, (label, rows) in zip(row, parts, strict=True):
            draw(axes, rows)
            axes.yaxis.set_major_formatter(FuncFormatter(lambda y, _: f"{y:,.10g}"))
            if panels:
                axes.set_title(label, fontsize=9)
        if log:
            row[0].set_yscale("log")
        else:
            row[0].set_ylim(0, 1.25 * max(heights(made, goals)))
        row[0].set_ylabel(f"{made[0]['metric']}, {made[0]['unit']}")
        entries = {}
        for axes in row:
            for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
                entries.setdefault(label, handle)
        figure.legend(entries.values(), entries.keys(), loc="outside right center", fontsize=8)
        save(figure, path)


def save(figure, path):
    """Saves an SVG without a date and without trailing spaces; and a PNG beside it, for places
    that show no SVG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with mpl.rc_context(STYLE):
        figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None})
        figure.savefig(path.with_suffix(".png"), format="png", dpi=150)
    text = path.read_text()
    path.write_text("\n".join(line.rstrip() for line in text.splitlines()) + "\n")
