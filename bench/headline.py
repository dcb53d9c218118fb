# SPDX-License-Identifier: Apache-2.0
"""Headline figures among a benchmark's rows, as each page shows them: value, goal, met or not."""

from bench import report
from bench.goals import HEADLINES


def same(wanted, value):
    """Families are named 4 or IPv4."""
    return str(wanted).removeprefix("IPv") == str(value).removeprefix("IPv")


def find(headline, made):
    """The row that a headline is about; None: it was not measured."""
    found = [
        row
        for row in made
        if row["bench"] == headline.bench
        and row["metric"] == headline.metric
        and all(same(v, row["params"].get(k)) for k, v in headline.params.items())
        and headline.baseline in (row["baseline"] or {"name": ""})["name"]
    ]
    if headline.largest:
        found.sort(key=lambda row: row["params"].get(headline.largest, 0), reverse=True)
    return found[0] if found else None


def measured(headline, row):
    """The value that counts, with its unit and, unless it is the median, which value it is."""
    if headline.fastest:
        unit = row["unit"].partition("/")[0]
        fastest, median = report.number(row["min"]), report.number(row["median"])
        return f"fastest run {fastest} {unit}, median {median}"
    return f"{report.number(row['median'])} {row['unit']}"


def reached(headline, row):
    """The number that is compared with the goal: a value, or its ratio to the baseline's."""
    if "×" not in headline.goal:
        return measured(headline, row)
    between = f" ({report.between(row)})" if report.between(row) else ""
    return f"{row['ratio']:.4g} ×{between}"


def line(headline, row):
    """A row of the table, in Markdown."""
    value = measured(headline, row)
    stick = row["baseline"]
    beside = f"{report.number(stick['median'])} {row['unit']}: {stick['name']}" if stick else ""
    # One digit more than values: 1.897 is below a goal of 1.9, and 1.90 would hide that.
    ratio = f"{row['ratio']:.4g} ×" if stick else ""
    words = {True: "yes", False: "**no**", None: "not shown"}
    met = words[headline.met(row)] if headline.met else ""
    parameters = {name: report.amount(value) for name, value in row["params"].items()}
    what = headline.what.format(**parameters)
    return f"| {what} | {value} | {beside} | {ratio} | {headline.goal} | {met} |"


def goals(name, made):
    """The goals of a benchmark, one line each, and whether the results meet them."""
    lines = []
    for headline in HEADLINES:
        row = find(headline, made) if headline.bench == name and headline.met else None
        if row:
            parameters = {key: report.amount(value) for key, value in row["params"].items()}
            what = headline.what.format(**parameters)
            outcome = {True: "met", False: "NOT MET", None: "not shown"}[headline.met(row)]
            lines.append(f"   goal {headline.goal}: {reached(headline, row)}: {outcome} — {what}")
    return lines


HEAD = "| what | measured | baseline beside it | ratio | goal | met |\n|---|---|---|---|---|---|"


def table(made):
    """All headlines that were measured; empty if there are none."""
    found = [(headline, find(headline, made)) for headline in HEADLINES]
    lines = [line(headline, row) for headline, row in found if row]
    if not lines:
        return ""
    return "\n".join([HEAD, *lines]) + "\n"
