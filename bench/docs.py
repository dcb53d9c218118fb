# SPDX-License-Identifier: Apache-2.0
"""Writes the results of full runs into the documentation: `make bench-docs`. With QUICK=1, the
results of the last quick runs.

The headline table goes into README.md, between its markers; all rows go into
docs/benchmarks/README.md, with the pictures beside it. Benchmarks without a full run are omitted.
"""

import json
import shutil
import sys

from bench import __main__ as bench
from bench import headline, machine, report

BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->\n"
README = machine.ROOT / "README.md"
FIGURES = machine.ROOT / "docs/benchmarks"
SHOWN = ("fastpath",)  # pictures in the README itself
READING = """\
Values
are medians of runs, where nothing else is said. After each run its baseline ran: the ratio is the
median of those pairs, not that of the columns. `not shown`: runs scatter too much to tell."""


def replace(text, inner):
    """The text with the part between the markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"bench-docs: README.md has no {BEGIN.strip()} … {END.strip()}")
    return before + begin + inner + end + after


def of_machine(described):
    return "{processor}, {cores} cores, {memory_gb} GB of memory, Linux {kernel}".format(
        **described
    )


def readme(made, described, pictures, how):
    parts = [f"Measured by `{how}` on {of_machine(described)}. {READING}\n", headline.table(made)]
    for name in SHOWN:
        if f"{name}.svg" in pictures:
            parts.append(f"![{name}](docs/benchmarks/{name}.svg)\n")
    parts.append(
        "What each means, and every other figure: [docs/benchmarks.md](docs/benchmarks.md).\n"
    )
    return "\n".join(part for part in parts if part)


def figures(results, described, pictures, how):
    """docs/benchmarks/README.md: all results."""
    lines = [
        "# What the benchmarks measured",
        "",
        f"By `{how}` on {of_machine(described)}. Written by `make bench-docs`;",
        "[docs/benchmarks.md](../benchmarks.md) says what each measures, and how.",
    ]
    for name, made in results.items():
        lines += ["", f"## {name}", ""]
        for picture in sorted(pictures):
            if picture == f"{name}.svg" or picture.startswith(f"{name}-"):
                lines += [f"![{picture.removesuffix('.svg')}]({picture})", ""]
        lines += ["```", report.table(made).rstrip("\n"), "```"]
    return "\n".join(lines) + "\n"


def main(quick):
    how, kind = ("make bench QUICK=1", "quick") if quick else ("make bench", "full")
    folder = bench.RESULTS if quick else bench.FULL
    results = {
        name: report.read(folder / f"{name}.json")
        for name in bench.names()
        if (folder / f"{name}.json").exists()
    }
    if not results:
        print(f"bench-docs: there is no {kind} run: {how}", file=sys.stderr)
        return 1
    FIGURES.mkdir(exist_ok=True)
    for old in FIGURES.glob("*.svg"):
        old.unlink()
    pictures = []
    for picture in sorted(folder.glob("*.svg")):
        shutil.copy(picture, FIGURES)
        pictures.append(picture.name)
    described = json.loads((folder / "machine.json").read_text())
    made = [row for rows in results.values() for row in rows]
    README.write_text(replace(README.read_text(), readme(made, described, pictures, how)))
    (FIGURES / "README.md").write_text(figures(results, described, pictures, how))
    for name in bench.names():
        if name not in results:
            print(f"bench-docs: no {kind} run of {name}: it is left out")
    return 0


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
