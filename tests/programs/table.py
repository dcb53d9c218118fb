# SPDX-License-Identifier: Apache-2.0
"""The table of docs/run.md and its programs; `python -m tests.programs.table` writes it."""

from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.programs import gateways, languages, services, stores, web
from tests.programs.checks import COLUMNS
from tests.programs.client_programs import CLIENTS

PROGRAMS = tuple(
    program for part in (web, gateways, stores, services, languages) for program in part.PROGRAMS
)
PAGE = ROOT / "docs/run.md"
MARKS = "<!-- programs -->\n", "<!-- /programs -->\n"


def rows():
    """Returns the programs of each row, by its name."""
    found = {}
    for program in PROGRAMS:
        found.setdefault(program.row or program.name, []).append(program)
    return found


def cell(programs, column, notes):
    """Returns the text of a row's column. `notes` are numbered in the order of their use."""
    program = next((one for one in programs if column in (*one.cells, *one.notes)), None)
    if not program:
        return "–"
    if column not in program.notes:
        return "✓"
    label, _, why = program.notes[column].partition(": ")
    if why not in notes:
        notes.append(why)
    return f"{label} ({notes.index(why) + 1})"


def table():
    notes, lines = [], [f"| program | {' | '.join(COLUMNS)} |", "|---" * (len(COLUMNS) + 1) + "|"]
    for name, programs in rows().items():
        cells = [cell(programs, column, notes) for column in COLUMNS]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", *(f"{number}. {why}." for number, why in enumerate(notes, 1))]
    lines += ["", "| client | opens connections | TLS |", "|---|---|---|"]
    for client in CLIENTS:
        cells = ["✓" if column in client.cells else "–" for column in ("opens", "TLS")]
        lines.append(f"| {client.name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def replaced(text):
    """Returns the page with the current table."""
    head, _, rest = text.partition(MARKS[0])
    _, _, tail = rest.partition(MARKS[1])
    return head + MARKS[0] + table() + MARKS[1] + tail


def make_certificate(folder):
    """Makes a certificate for the host's addresses, which clients trust, and its key."""
    cert, key = folder / "cert.pem", folder / "key.pem"
    if not cert.exists():
        names = "subjectAltName=IP:10.0.0.1,IP:fd00::1,IP:10.0.0.10,IP:fd00::10"
        argv = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"]
        argv += ["-nodes", "-days", 2, "-subj", "/CN=test", "-addext", names]
        run([*argv, "-keyout", key, "-out", cert])
        key.chmod(0o644)
    return cert, key


if __name__ == "__main__":
    PAGE.write_text(replaced(PAGE.read_text()))
