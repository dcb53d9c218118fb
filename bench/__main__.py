# SPDX-License-Identifier: Apache-2.0
"""Runs the benchmarks, all of them or only the named ones.

Each is a module bench/run_NAME.py:

    TITLE                 what it measures, in one line
    MINUTES               duration of all cells, on two cores of 3 GHz and 24 GB
    rows(quick)           yields runs (bench/report.py): all cells; quick: the headline ones
    smoke()               yields runs of the smallest possible cell, within some 2 s
    plot(rows, path)      optional: draws the rows by bench/picture.py, as NAME.svg, which is path,
                          and as NAME-*.svg if there is more to draw; each has a PNG beside it

The runs are collected into build/bench/NAME.json. After a full run, all results are copied to
build/bench/full/, where `make bench-docs` finds them. NAME.origin.json names the commit that was
measured (bench/origin.py), so that `--resume` can skip it.
"""

import argparse
import contextlib
import importlib
import json
import os
import shutil
import signal
import sys
import time
from pathlib import Path

from bench import headline, machine, origin, report
from tests.lab import reap

RESULTS = machine.ROOT / "build/bench"
FULL = RESULTS / "full"
ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)  # the setup is undone in every case
# The others follow in alphabetical order.
ORDER = ("fastpath", "wire", "cps", "density", "latency", "scale", "overhead", "config")


def names():
    found = [path.stem.removeprefix("run_") for path in Path(__file__).parent.glob("run_*.py")]
    return sorted(found, key=lambda n: (ORDER.index(n) if n in ORDER else len(ORDER), n))


def collect(runs):
    """All runs that come, and the exception that ended them early, if any."""
    got = []
    watched = sys.stderr.isatty()
    try:
        with contextlib.closing(runs):
            for run in runs:
                report.check(run)
                got.append(run)
                if watched:
                    print(f"\r   {len(got)} runs ", end="", file=sys.stderr, flush=True)
    except Exception as problem:  # noqa: BLE001 # whatever it is, the other benchmarks go on
        return got, problem
    finally:
        if watched:
            print("\r            \r", end="", file=sys.stderr, flush=True)
    return got, None


def complain(name, problem):
    kind = "" if isinstance(problem, machine.Failed) else f"{type(problem).__name__}: "
    print(f"✗  {name}: {kind}{problem}", flush=True)


def results(folder, name):
    """The results of a benchmark in a folder."""
    pictures = [*folder.glob(f"{name}.svg"), *folder.glob(f"{name}-*.svg")]
    return [*folder.glob(f"{name}.json"), *folder.glob(f"{name}.origin.json"), *pictures]


def is_measured(name):
    """Whether there is a full run of this commit."""
    file = FULL / f"{name}.origin.json"
    measured = origin.commit()
    return (
        file.exists()
        and not measured.endswith("-dirty")
        and json.loads(file.read_text())["commit"] == measured
    )


def keep(name, module, made, full):
    """Writes the results as data and as a picture."""
    report.write(RESULTS / f"{name}.json", made)
    if hasattr(module, "plot"):
        module.plot(made, RESULTS / f"{name}.svg")
    of = json.dumps(origin.now(quick=not full), indent=2)
    (RESULTS / f"{name}.origin.json").write_text(of + "\n")
    if not full:
        return
    FULL.mkdir(exist_ok=True)
    for file in results(FULL, name):
        file.unlink()
    for file in results(RESULTS, name):
        shutil.copy(file, FULL)


def perform(name, quick, smoke):
    """Runs one benchmark; True if it succeeded."""
    start = time.monotonic()
    try:
        module = importlib.import_module(f"bench.run_{name}")
    except ImportError as problem:
        complain(name, problem)
        return False
    print(f"── {name}: {module.TITLE}", flush=True)
    for file in () if smoke else results(RESULTS, name):
        # Removes an earlier run's figures: they must not pass for those of a failed run.
        file.unlink()
    runs, problem = collect(module.smoke() if smoke else module.rows(quick))
    made = report.rows(runs)
    print(report.table(made), end="")
    if not smoke:
        for line in headline.goals(name, made):
            print(line)
    if problem is None and not made:
        problem = machine.Failed("measured nothing")
    if problem is None and not smoke:
        keep(name, module, made, full=not quick)
    if problem is not None:
        complain(name, problem)
        return False
    where = "" if smoke else f" (build/bench/{name}.json)"
    print(f"✓  {name}: {time.monotonic() - start:.0f} s{where}", flush=True)
    return True


def interrupt(*_):
    """Ends the run, once: the cleanup itself must not be interrupted."""
    for number in ENDS:
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


LEGEND = """\
Each value is the median of its runs; their extremes are beside it. A baseline, what the machine or
another program takes for the same or for less, is run in turn with it: `ratio` is the median of
those pairs. docs/benchmarks.md says what each benchmark measures, and how.
"""


def announce(chosen):
    """Prints how long a full run takes."""
    minutes = {n: importlib.import_module(f"bench.run_{n}").MINUTES for n in chosen}
    each = ", ".join(f"{name} {number}" for name, number in minutes.items())
    print(f"Some {sum(minutes.values())} minutes: {each}.")
    print("If it is interrupted, `make bench RESUME=1` leaves out what this commit has already.\n")


def main():
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="of " + ", ".join(names()))
    parser.add_argument("--quick", action="store_true", help="the headline cells only")
    parser.add_argument("--smoke", action="store_true", help="does each still work? writes no file")
    parser.add_argument(
        "--resume", action="store_true", help="leave out full runs that this commit had already"
    )
    arguments = parser.parse_args()
    unknown = set(arguments.names) - set(names())
    if unknown:
        parser.error(f"no benchmark {' '.join(sorted(unknown))}; there are {' '.join(names())}")
    if os.geteuid() and not arguments.smoke:
        parser.error("benchmarks take huge pages and make network namespaces: run them as root")
    for number in ENDS:
        signal.signal(number, interrupt)
    for lab in reap.reap_dead():
        print(f"   put back what {lab} had set up before it was killed")
    chosen = arguments.names or names()
    if arguments.resume:
        chosen = [name for name in chosen if not is_measured(name)]
    machine.preferring = not arguments.smoke
    if not arguments.smoke:
        print(LEGEND)
    if not arguments.smoke and not arguments.quick:
        announce(chosen)
    failed = []
    try:
        for name in chosen:
            if not perform(name, arguments.quick, arguments.smoke):
                failed.append(name)
    except KeyboardInterrupt:
        print("\ninterrupted: what had been set up was put back", file=sys.stderr)
        return 130
    if failed:
        print(f"failed: {' '.join(failed)}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
