# SPDX-License-Identifier: Apache-2.0
"""Writes the results of full runs into the documentation: `make bench-docs`. With QUICK=1, the
results of the last quick runs.

Each benchmark has a page, docs/benchmarks/NAME.md, with its pictures beside it: one that has not
been run keeps what it has shown, and says if the code has changed since.
docs/benchmarks/README.md has the goals of all pages, README.md the main ones.
"""

import importlib
import json
import shutil
import sys
from pathlib import Path

from bench import __main__ as bench
from bench import headline, machine, origin, report

BEGIN, END = "<!-- bench -->\n", "<!-- /bench -->\n"
GOALS = "<!-- goals -->\n"  # before and behind a page's table of goals
README = machine.ROOT / "README.md"
FIGURES = machine.ROOT / "docs/benchmarks"
MAIN = (  # rows of README.md: how they begin
    "a packet of an established FNAT session, IPv4, 1 M sessions",
    "64-byte packets over memif, 1 k sessions",
    "complete TCP connections, IPv4",
    "memory of an IPv4 session",
    "two workers, packets arriving at their owner",
    "error of a rate limit over 2 s, engine `cas`",
    "unmodified nginx by `steelyard run`",
    "99th-percentile latency of the urgent 5 % of requests",
)
READING = """\
Values are medians of runs unless the row says otherwise. The baseline ran after each run: the ratio
is the median of those pairs, not the ratio of the columns. `not shown`: runs scatter too much to
decide."""


def replace(text, inner):
    """The text with the part between the markers replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise SystemExit(f"bench-docs: README.md has no {BEGIN.strip()} … {END.strip()}")
    return before + begin + inner + end + after


def page(name, made, measured, pictures):
    """docs/benchmarks/NAME.md."""
    title = importlib.import_module(f"bench.run_{name}").TITLE
    goals = headline.table(made)
    parts = [
        f"# {name}: {title}\n",
        origin.paragraph(name, measured),
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


def lesser(texts):
    """Sentences that name the benchmarks with quick runs only, and those whose code has changed."""
    quick = [name for name, text in texts.items() if origin.read(text)["quick"]]
    older = [name for name, text in texts.items() if origin.OLDER in text]
    kinds = (
        ("Measured by quick runs, with fewer repetitions", quick),
        ("Measured before the code's latest changes", older),
    )
    return "".join(
        f" {kind}: {', '.join(named) if len(named) < len(texts) else 'all figures'}."
        for kind, named in kinds
        if named
    )


def readme(texts):
    rows = [row for text in texts.values() for row in goals(text)]
    main = [row for start in MAIN for row in rows if row.startswith(f"| {start}")]
    parts = [
        "Measured by `make bench` at the commit and on the machine that [each"
        f" page](docs/benchmarks/README.md) names.{lesser(texts)}\n",
        "".join([headline.HEAD + "\n", *main]) if main else "",
        "All figures and their goals: [docs/benchmarks](docs/benchmarks/README.md). How they are"
        " measured: [docs/benchmarks.md](docs/benchmarks.md).\n",
    ]
    return "\n".join(part for part in parts if part)


def index(texts):
    """docs/benchmarks/README.md."""
    rows = [row for text in texts.values() for row in goals(text)]
    pictures = [name for name in texts if (FIGURES / f"{name}.svg").exists()]
    parts = [
        "# Results of the benchmarks\n",
        "".join(entry(name, text) for name, text in texts.items()),
        "Written by `make bench-docs`. Each page names its commit, date, machine and kind of run."
        f"{lesser(texts)}\n"
        f"[docs/benchmarks.md](../benchmarks.md) says what is measured, and how.\n\n{READING}\n",
        "".join([headline.HEAD + "\n", *rows]) if rows else "",
        f"![{pictures[0]}]({pictures[0]}.svg)\n" if pictures else "",
    ]
    return "\n".join(part for part in parts if part)


def entry(name, text):
    """A page's line in the index, and its notes, which people write."""
    notes = f"{name}-findings.md"
    also = f" ([findings]({notes}))" if (FIGURES / notes).exists() else ""
    return f"- [{name}]({name}.md): {title_of(text)}{also}\n"


def title_of(text):
    return text.splitlines()[0].partition(": ")[2]


def tidy():
    """Deletes files that belong to no benchmark."""
    known = bench.names()
    for file in (*FIGURES.glob("*.svg"), *FIGURES.glob("*.md")):
        if file.name != "README.md" and file.stem.partition("-")[0] not in known:
            file.unlink()


def publish(name, folder):
    """The page of a benchmark, and its pictures."""
    FIGURES.mkdir(exist_ok=True)
    for old in (*FIGURES.glob(f"{name}.svg"), *FIGURES.glob(f"{name}-*.svg")):
        old.unlink()
    pictures = [*folder.glob(f"{name}.svg"), *folder.glob(f"{name}-*.svg")]
    for picture in pictures:
        shutil.copy(picture, FIGURES)
    made = report.read(folder / f"{name}.json")
    measured = json.loads((folder / f"{name}.origin.json").read_text())
    text = page(name, made, measured, [picture.name for picture in pictures])
    (FIGURES / f"{name}.md").write_text(text)


def is_kept(folder, name, quick):
    """Whether the folder has a run of this kind."""
    file = folder / f"{name}.origin.json"
    return file.exists() and json.loads(file.read_text())["quick"] == quick


def main(quick):
    how, kind = ("make bench QUICK=1", "quick") if quick else ("make bench", "full")
    folder = bench.RESULTS if quick else bench.FULL
    measured = [name for name in bench.names() if is_kept(folder, name, quick)]
    if not measured:
        print(f"bench-docs: there is no {kind} run: {how}", file=sys.stderr)
        return 1
    for name in measured:
        publish(name, folder)
    tidy()
    for name, text in pages().items():
        (FIGURES / f"{name}.md").write_text(origin.renewed(name, text))
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
