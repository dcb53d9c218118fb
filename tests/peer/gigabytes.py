# SPDX-License-Identifier: Apache-2.0
"""Transfers gigabytes between the stack and Linux's TCP over each link of test_stack_interop.py.

    .venv/bin/python -m tests.peer.gigabytes                 # 1 GB a connection, all links
    .venv/bin/python -m tests.peer.gigabytes --megabytes 100 --row loss --row copies --family 4
    .venv/bin/python -m tests.peer.gigabytes --write         # and its rows into docs/testing.md

Four connections at a time, each way with the stack as client and as server; every byte is compared.
Each row replaces its predecessor as soon as it is done. The exit status says whether all effects
that the test expects were observed.
"""

import argparse
import platform
import re
import socket
import sys
import time
from pathlib import Path

from tests.demo.show import Show, say
from tests.lab.lab import catch_signals
from tests.lab.peer import TCP_CONGESTION
from tests.wire.interop import InteropStage, transfer
from tests.wire.test_stack_interop import DEFAULTS, ROWS, retransmissions

PAGE = Path(__file__).resolve().parents[2] / "docs/testing.md"
MARKS = "<!-- gigabytes -->\n", "<!-- /gigabytes -->\n"
HEAD = ["link", "IP", "carried", "Mbit/s", "sent again", "the kernel", "lost, copied, marked"]
DEADLINE_S = 7200  # of a row


def kernel_can(stage, row):
    """Returns whether this kernel has the row's congestion control."""
    with stage.kernel.socket() as one:
        try:
            name = row.end.get("congestion", "cubic").encode()
            one.setsockopt(socket.IPPROTO_TCP, TCP_CONGESTION, name)
        except OSError:
            return False
    return True


def carry(stage, row, family, size):
    """Returns a row of the table, and the missed effects."""
    peer = stage.peer(**row.options)
    for name, value in row.sysctl.items():
        stage.kernel.sysctl(f"ipv4.{name}", value)
    stage.link.set(**row.link)
    begun = time.monotonic()
    try:
        outcome = transfer(stage, peer, family, size, row.words, deadline_s=DEADLINE_S, **row.end)
    finally:
        for name in row.sysctl:
            stage.kernel.sysctl(f"ipv4.{name}", DEFAULTS[name])
    seconds = time.monotonic() - begun
    missed = []
    try:
        assert row.counts(outcome), "this says nothing: run it again"
        assert outcome.stack["timed_out"] == 0, "a connection timed out"
        if row.clean:
            assert outcome.kernel["TcpInCsumErrors"] == outcome.stack["bad_checksums"] == 0
        row.seen(outcome, family)
    except AssertionError as what:
        missed = [f"{row.name}, IPv{family}: {what}"]
    stage.reset()
    carried = sum(size for _ in outcome.flows)
    stack, kernel = retransmissions(outcome)
    link = [sum(outcome.link[way][key] for way in ("ab", "ba")) for key in LINK]
    rate = f"{8e-6 * carried / seconds:.0f}"
    cells = [row.name, str(family), amount(carried), rate, f"{stack:,}", f"{kernel:,}"]
    return [*cells, " ".join(f"{n:,}" for n in link)], missed


LINK = ("dropped", "duplicated", "marked")


def amount(size):
    return f"{size / 1e9:g} GB" if size >= 1e9 else f"{size / 1e6:g} MB"


# ---- the page ------------------------------------------------------------------------------------


def cells_of(page):
    """Returns the rows of a page, by link and family."""
    inside = page.split(MARKS[0])[1].split(MARKS[1])[0]
    lines = re.findall(r"^\| (.*) \|$", inside, re.M)[1:]
    rows = [line.split(" | ") for line in lines]
    return {(row[0], row[1]): row for row in rows}


def replaced(page, row, machine):
    """Returns the page with this row in place of the one of its link and family, in the test's
    order."""
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    rows = cells_of(page) | {(row[0], row[1]): row}
    said = re.search(r"^On (.*); each row", page, re.M)
    machines = said[1].split(" and ") if said else []
    machines += [] if machine in machines else [machine]
    names = [one.name for one in ROWS]
    known = [(name, family) for name in names for family in ("4", "6") if (name, family) in rows]
    lines = [f"On {' and '.join(machines)}; each row is the last run of its link.", ""]
    lines += [f"| {' | '.join(HEAD)} |", "|---" * len(HEAD) + "|"]
    lines += [f"| {' | '.join(rows[key])} |" for key in known]
    return before + MARKS[0] + "\n".join(lines) + "\n" + MARKS[1] + after


def this_machine():
    text = Path("/proc/cpuinfo").read_text()
    model = re.search(r"^model name\s*: (.*)$", text, re.M)
    cores = len(re.findall(r"^processor\b", text, re.M))
    kernel = platform.release().partition("-")[0]
    return f"{model[1] if model else platform.machine()}, {cores} cores, Linux {kernel}"


def main():
    catch_signals()
    parse = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parse.add_argument("--megabytes", type=float, default=1000, help="of a connection")
    parse.add_argument("--row", action="append", choices=[row.name for row in ROWS], help="(all)")
    parse.add_argument("--family", action="append", type=int, choices=(4, 6), help="(both)")
    parse.add_argument("--write", action="store_true", help="write docs/testing.md's table")
    options = parse.parse_args()
    done, missed = [], []
    with InteropStage() as stage:
        for row in ROWS:
            if options.row and row.name not in options.row:
                continue
            if not kernel_can(stage, row):
                say(f"   {row.name}: left out, this kernel has none")
                continue
            for family in options.family or (4, 6):
                cells, short = carry(stage, row, family, int(options.megabytes * 1e6))
                say("   " + "  ".join(cells))
                done.append(cells)
                missed += short
                if options.write and not short:
                    PAGE.write_text(replaced(PAGE.read_text(), cells, this_machine()))
    return Show().verdict(HEAD, done, missed)


if __name__ == "__main__":
    sys.exit(main())
