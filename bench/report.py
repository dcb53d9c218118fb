# SPDX-License-Identifier: Apache-2.0
"""From runs to rows: turns the benchmarks' lines of JSON into a file and a table.

A run is one measured value with its baseline's value:

    {"bench", "params": {…}, "metric", "unit", "value", "baseline": {"name", "value"},
     "evidence": {name: number}}

The baseline is optional. So is the evidence: further observations, in the file only, that show
whether the value is valid. A row is all runs of one cell, metric and baseline:

    {"bench", "params": {…}, "metric", "unit", "median", "min", "max", "runs",
     "baseline": {"name", "median"} or null, "ratio": number or null,
     "evidence": medians, where runs had any}

The ratio is the median over the pairs, so disturbances that affect both halves of a pair cancel
out. With six pairs or more, `low` and `high` in the evidence are the limits of its 95 % confidence
interval.
"""

import json
import math
from statistics import median


class Malformed(Exception):
    """A run that has the wrong form."""


def check(run):
    """Raises Malformed unless this is a complete run, with positive values where they are
    compared."""
    for field, kind in (("bench", str), ("params", dict), ("metric", str), ("unit", str)):
        if not isinstance(run.get(field), kind):
            raise Malformed(f"no `{field}` in {run}")
    baseline = run.get("baseline")
    value = run.get("value")
    if not is_number(value) or value < 0:
        raise Malformed(f"neither a positive number nor 0: {value!r} in {run}")
    if baseline is not None:
        if not isinstance(baseline, dict) or not isinstance(baseline.get("name"), str):
            raise Malformed(f"a baseline without a name in {run}")
        for compared in (value, baseline.get("value")):
            if not is_number(compared) or compared <= 0:
                raise Malformed(f"not a positive number: {compared!r} in {run}")
    if not all(map(is_number, run.get("evidence", {}).values())):
        raise Malformed(f"evidence that is no number in {run}")


def is_number(value):
    kind = isinstance(value, int | float) and not isinstance(value, bool)
    return kind and math.isfinite(value)


def rows(runs):
    """Collects runs into rows, in the order of their first runs."""
    cells = {}
    for run in runs:
        check(run)
        baseline = run.get("baseline")
        key = (
            run["bench"],
            json.dumps(run["params"], sort_keys=True),
            run["metric"],
            run["unit"],
            baseline["name"] if baseline else None,
        )
        cells.setdefault(key, []).append(run)
    return [row_of(cell) for cell in cells.values()]


def row_of(runs):
    values = [run["value"] for run in runs]
    row = {name: runs[0][name] for name in ("bench", "params", "metric", "unit")}
    row |= {
        "median": median(values),
        "min": min(values),
        "max": max(values),
        "runs": len(values),
        "baseline": None,
        "ratio": None,
    }
    if runs[0].get("baseline"):
        row["baseline"] = {
            "name": runs[0]["baseline"]["name"],
            "median": median(run["baseline"]["value"] for run in runs),
        }
        ratios = [run["value"] / run["baseline"]["value"] for run in runs]
        row["ratio"] = median(ratios)
    seen = [run["evidence"] for run in runs if "evidence" in run]
    evidence = {name: median(one[name] for one in seen) for name in seen[0]} if seen else {}
    between = interval(ratios) if row["baseline"] else None
    if between:
        evidence["low"], evidence["high"] = between
    if evidence:
        row["evidence"] = evidence
    return row


def interval(values):
    """The interval in which the median of all possible values lies, in 95 % of all cases; None:
    too few values. It holds for any distribution: each value is above or below with even odds."""
    values = sorted(values)
    count, below, tail = len(values), 0, 1  # tail: of 2^count cases, those with `below` or fewer
    while tail / 2**count <= 0.025:
        below += 1
        tail += math.comb(count, below)
    return (values[below - 1], values[-below]) if below else None


def write(path, made):
    """One row per line: easy to read, to grep, to compare."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join("  " + json.dumps(row) for row in made)
    path.write_text(f"[\n{lines}\n]\n")


def read(path):
    return json.loads(path.read_text())


def select(made, metric=None, **params):
    """The rows of this metric whose parameters include these."""
    return [
        row
        for row in made
        if (metric is None or row["metric"] == metric) and params.items() <= row["params"].items()
    ]


# ---- for people ----------------------------------------------------------------------------------


def number(value):
    """A measured value, with at least three significant digits."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.{max(0, 2 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def amount(value):
    """A parameter: 1000000 is 1 M."""
    if isinstance(value, int) and not isinstance(value, bool):
        for factor, letter in ((10**9, "G"), (10**6, "M"), (1000, "k")):
            if value >= factor and value % (factor // 10) == 0:
                return f"{value / factor:g} {letter}"
    return str(value)


HEAD = ("", "median", "min", "max", "runs", "baseline", "", "ratio", "95 %")


def between(row):
    """An interval, with four significant digits."""
    evidence = row.get("evidence", {})
    return f"{evidence['low']:.4g}–{evidence['high']:.4g}" if "low" in evidence else ""


def cells(row, columns):
    stick = row["baseline"]
    return [
        *(amount(row["params"][name]) if name in row["params"] else "" for name in columns),
        f"{row['metric']}, {row['unit']}",
        number(row["median"]),
        number(row["min"]),
        number(row["max"]),
        str(row["runs"]),
        number(stick["median"]) if stick else "",
        stick["name"] if stick else "",
        number(row["ratio"]) if stick else "",
        between(row),
    ]


def table(made):
    """Rows as aligned text; parameters that are the same in all rows are printed above it."""
    if not made:
        return "nothing was measured\n"
    names = list(dict.fromkeys(name for row in made for name in row["params"]))
    shared = {
        name: made[0]["params"][name]
        for name in names
        if len(made) > 1
        and all(row["params"].get(name) == made[0]["params"].get(name) for row in made)
    }
    columns = [name for name in names if name not in shared]
    head = [*columns, *HEAD]
    lines = [head, *(cells(row, columns) for row in made)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    # Words to the left, numbers to the right.
    words = {len(columns), len(columns) + 6}
    words |= {
        i
        for i, name in enumerate(columns)
        if any(isinstance(r["params"].get(name), str) for r in made)
    }
    text = (
        [", ".join(f"{name} {amount(value)}" for name, value in shared.items())] if shared else []
    )
    for line in lines:
        text.append(
            "  ".join(
                cell.ljust(width) if i in words else cell.rjust(width)
                for i, (cell, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
        )
    return "\n".join(text) + "\n"
