# SPDX-License-Identifier: Apache-2.0
"""Checks that each mechanism of the TCP stack has scripts of segments that name its sections.

Reads the scripts' names from dataplane/tcp/tests/test_script_*.c. docs/testing.md has a table of
them, which `make format` writes and lint compares."""

import re

from checks.base import ROOT, complaints, tracked

SCRIPTS = "dataplane/tcp/tests/test_script_*.c"
PAGE = ROOT / "docs/testing.md"
CASES_MIN, ALL_MIN = 2, 150
MARKS = "<!-- scripts -->\n", "<!-- /scripts -->\n"

# Names that belong to a mechanism: an RFC and a section, or a figure or requirement of it.
MECHANISMS = {
    "window scaling": ["7323 2"],
    "timestamps, PAWS": ["7323 3", "7323 4", "7323 5"],
    "SACK": ["2018", "6675"],
    "D-SACK": ["2883"],
    "RACK-TLP": ["8985"],
    "PRR": ["6937"],
    "CUBIC": ["9438"],
    "NewReno": ["6582"],
    "slow start, congestion avoidance": ["5681", "9406", "2861"],
    "losses that were none": ["4015", "3708", "5682"],
    "pacing": ["9002 7.7"],
    "retransmission time-out": ["6298"],
    "initial window of ten": ["6928"],
    "delayed acknowledgements": ["9293 3.8.6.3"],
    "Nagle": ["896", "9293 3.7.4"],
    "silly windows": ["9293 3.8.6.2"],
    "keepalive": ["9293 3.8.4"],
    "zero-window probes": ["9293 3.8.6.1", "6429"],
    "ECN": ["3168"],
    "path MTU discovery": ["1191", "8201"],
    "black holes, probes of the path": ["4821", "8899"],
    "blind attacks": ["5961"],
    "initial sequence numbers": ["6528"],
    "SYN cookies": ["4987"],
    "TIME-WAIT and its reuse": ["6191", "1337", "1122 4.2.2.13"],
    "simultaneous open": ["9293 3.5, figure 7"],
    "simultaneous close": ["9293 3.6, figure 13"],
    "half-close": ["9293 3.6.1"],
    "urgent data": ["6093"],
    "bounded reassembly": ["9293 3.10.7.4, SHLD-31"],
    "errors of hosts and routers": ["1122 4.2.3.9", "5461", "5927"],
    "states, windows, resets": ["9293"],
}

OF_RFC = re.compile(r"RFC (\d+)((?:,? (?:figure |\w+, SHLD-|SHLD-)?\d[\d.]*)*)")
PART = re.compile(r"(figure |SHLD-)?(\d[\d.]*)")
ENTRY = re.compile(r'\{"((?:[^"\\]|\\.)*)",\s*"[^"]*",')


def names(text):
    """Returns the names of a file's scripts."""
    return ENTRY.findall(text)


def sections(name):
    """Returns the sections before a name's colon: "9293 3.5, figure 7", "9293 3.10.7.4,
    SHLD-31"."""
    found = []
    for rfc, numbers in OF_RFC.findall(name.split(": ")[0]):
        parts, last = PART.findall(numbers), ""
        for kind, number in parts:
            if not kind:
                last = f"{rfc} {number.rstrip('.')}"
            elif found:
                found.pop()
            found.append(f"{last}, {kind}{number}" if kind else last)
        if not parts:
            found.append(rfc)
    return found


def belongs(section, prefix):
    """Returns whether a section belongs to a prefix: 7323 2.3 to 7323 2, but 7323 22 does not."""
    return section == prefix or section.startswith((prefix + ".", prefix + " ", prefix + ","))


def count():
    """Returns each mechanism's sections and number of scripts; the number of all scripts, and of
    those that name an RFC."""
    every = [name for file in tracked(SCRIPTS) for name in names((ROOT / file).read_text())]
    named = [one for one in map(sections, every) if one]
    table = {}
    for mechanism, prefixes in MECHANISMS.items():
        cases, seen = 0, set()
        for one in named:
            own = [s for s in one if any(belongs(s, prefix) for prefix in prefixes)]
            cases += bool(own)
            seen.update(own)
        table[mechanism] = seen, cases
    return table, len(every), len(named)


def by_number(section):
    return [int(n) for n in re.findall(r"\d+", section)]


def shown(seen):
    """Returns sections as text without figures: RFC 2018 2, 3, 8; RFC 6675 5."""
    rfcs = {}
    for section in sorted({one.partition(",")[0] for one in seen}, key=by_number):
        rfc, _, part = section.partition(" ")
        rfcs.setdefault(rfc, []).append(part)
    return "; ".join(f"RFC {rfc} {', '.join(parts)}".rstrip() for rfc, parts in rfcs.items())


def table():
    made, every, named = count()
    lines = [f"{named} of {every} scripts name sections; each is played over IPv4 and IPv6.", ""]
    lines += ["| mechanism | scripts | sections |", "|---|---|---|"]
    lines += [f"| {name} | {cases} | {shown(seen)} |" for name, (seen, cases) in made.items()]
    return "\n".join(lines) + "\n"


def written(page, made):
    before, rest = page.split(MARKS[0])
    _, after = rest.split(MARKS[1])
    return before + MARKS[0] + made + MARKS[1] + after


def too_few():
    made, _, named = count()
    for name, (_, cases) in made.items():
        if cases < CASES_MIN:
            yield f"{name}: {cases} scripts name its sections"
    if named < ALL_MIN:
        yield f"{named} scripts name a section, fewer than {ALL_MIN}"


def check():
    page = PAGE.read_text()
    stale = [] if written(page, table()) == page else ["docs/testing.md: table (make format)"]
    return complaints([*too_few(), *stale], "scripts of segments")


def main():
    PAGE.write_text(written(PAGE.read_text(), table()))


if __name__ == "__main__":
    main()
