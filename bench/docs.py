# SPDX-License-Identifier: Apache-2.0
"""Writes the results of full runs into the documentation: `make bench-docs`. With QUICK=1, the
results of the last quick runs.

Each benchmark has a page of its own, docs/benchmarks/NAME.md, with its pictures beside it: one that
has not been run keeps what it has shown. The goals of all pages are README.md's table.
"""

import importlib
import json
import shutil
import sys
from pathlib import Path

from bench import __main__ as bench
from bench import headline, machine, report

BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->\n"
GOALS = "<!-- goals -->\n"  # before and behind a page's table of goals
README = machine.ROOT / "README.md"
FIGURES = machine.ROOT / "docs/benchmarks"
SHOWN = "fastpath"  # its picture is in the README itself
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


def page(name, made, described, pictures, how):
    """docs/benchmarks/NAME.md."""
    title = importlib.import_module(f"bench.run_{name}").TITLE
    goals = headline.table(made)
    parts = [
        f"# {name}: {title}\n",
        f"By `{how}` on {of_machine(described)}. Written by `make bench-docs`;\n"
        "[docs/benchmarks.md](../benchmarks.md) says what is measured, and how.\n",
        f"{GOALS}{goals}{GOALS}" if goals else "",
        *(f"![{Path(picture).stem}]({picture})\n" for picture in sorted(pictures)),
        f"```\n{report.table(made).rstrip()}\n```\n",
    ]
    return "\n".join(part for part in parts if part)


def pages():
    """Of all benchmarks that have one, in their order."""
    found = {name: FIGURES / f"{name}.md" for name in bench.names()}
    return {name: file.read_text() for name, file in found.items() if file.exists()}


def goals(text):
    """The rows of a page's table of goals."""
    _, _, rest = text.partition(GOALS)
    return rest.partition(GOALS)[0].splitlines(keepends=True)[2:]


def is_quick(text):
    """Whether a page is of a quick run."""
    return " QUICK=1` on " in text.partition(GOALS)[0]


def readme(texts):
    rows = [row for text in texts.values() for row in goals(text)]
    names = ", ".join(name for name, text in texts.items() if is_quick(text))
    quick = f"\nQuick runs: {names}." if names else ""
    parts = [
        "Measured by `make bench`; [each page](docs/benchmarks/README.md) names its run and"
        f" machine.{quick} {READING}\n",
        "".join([headline.HEAD + "\n", *rows]) if rows else "",
    ]
    if (FIGURES / f"{SHOWN}.svg").exists():
        parts.append(f"![{SHOWN}](docs/benchmarks/{SHOWN}.svg)\n")
    parts.append(
        "What each means, and every other figure: [docs/benchmarks.md](docs/benchmarks.md).\n"
    )
    return "\n".join(part for part in parts if part)


def index(texts):
    """docs/benchmarks/README.md."""
    lines = ["# What the benchmarks measured", ""]
    lines += [f"- [{name}]({name}.md): {title_of(text)}" for name, text in texts.items()]
    return "\n".join(lines) + "\n"


def title_of(text):
    return text.splitlines()[0].partition(": ")[2]


def tidy():
    """Takes away what belongs to no benchmark."""
    known = bench.names()
    for file in (*FIGURES.glob("*.svg"), *FIGURES.glob("*.md")):
        if file.name != "README.md" and file.stem.partition("-")[0] not in known:
            file.unlink()


def publish(name, folder, described, how):
    """The page of a benchmark, and its pictures."""
    FIGURES.mkdir(exist_ok=True)
    for old in (*FIGURES.glob(f"{name}.svg"), *FIGURES.glob(f"{name}-*.svg")):
        old.unlink()
    pictures = [*folder.glob(f"{name}.svg"), *folder.glob(f"{name}-*.svg")]
    for picture in pictures:
        shutil.copy(picture, FIGURES)
    made = report.read(folder / f"{name}.json")
    text = page(name, made, described, [picture.name for picture in pictures], how)
    (FIGURES / f"{name}.md").write_text(text)


def main(quick):
    how, kind = ("make bench{} QUICK=1", "quick") if quick else ("make bench{}", "full")
    folder = bench.RESULTS if quick else bench.FULL
    measured = [name for name in bench.names() if (folder / f"{name}.json").exists()]
    if not measured:
        print(f"bench-docs: there is no {kind} run: {how.format('')}", file=sys.stderr)
        return 1
    described = json.loads((folder / "machine.json").read_text())
    for name in measured:
        publish(name, folder, described, how.format(f" BENCH={name}"))
    tidy()
    texts = pages()
    README.write_text(replace(README.read_text(), readme(texts)))
    (FIGURES / "README.md").write_text(index(texts))
    for name in bench.names():
        if name not in measured:
            kept = "its page stays" if name in texts else "it has no page"
            print(f"bench-docs: no {kind} run of {name}: {kept}")
    return 0


if __name__ == "__main__":
    sys.exit(main("--quick" in sys.argv[1:]))
