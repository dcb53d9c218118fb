# SPDX-License-Identifier: Apache-2.0
"""Format and style."""

import re

from checks import documents, folders, mechanisms, rulers, words
from checks.base import ROOT, VENV, check_of, complaints, run, tracked

# The compiler may remove calls of functions that only prefetch: sy_base.h.
LOST_PREFETCH = re.compile(r"^static (?!SY_PREFETCH_INLINE)[^;{(]*\bvoid \w*prefetch\w*\(")


def lost_prefetches(text):
    """Returns the numbers of lines that declare such a function without SY_PREFETCH_INLINE."""
    lines = enumerate(text.split("\n"), 1)
    return [number for number, line in lines if LOST_PREFETCH.match(line)]


def lint_c():
    files = tracked("*.c", "*.h")
    count = check_of(
        run("clang-format", "--dry-run", "-Werror", *files), "clang-format (make format)"
    )
    lost = [f"{f}:{n}" for f in files for n in lost_prefetches((ROOT / f).read_text())]
    count += complaints(lost, "not SY_PREFETCH_INLINE")
    return count


def lint_go():
    files = tracked("*.go")
    unformatted = run("gofmt", "-l", *files).stdout.split()
    count = complaints(unformatted, "gofmt (make format)")
    count += check_of(run("go", "vet", "./..."), "go vet")
    count += check_of(run("go", "tool", "staticcheck", "./..."), "staticcheck")
    count += check_of(run("go", "mod", "verify"), "go mod verify")
    return count


PYTHON = ("bench", "tests", "scripts/check", "scripts/checks")


def lint_python():
    count = check_of(run(VENV / "ruff", "check", *PYTHON), "ruff check")
    count += check_of(run(VENV / "ruff", "format", "--check", *PYTHON), "ruff format")
    return count


def lint_shell():
    scripts = [f for f in tracked("scripts", ".ci") if first_line(f).endswith("sh")]
    return check_of(run("shellcheck", *scripts), "shellcheck")


def first_line(file):
    with open(ROOT / file, errors="replace") as text:
        return text.readline().rstrip("\n")


# Files that cannot have comments, or whose format is not ours.
NO_SPDX = re.compile(
    r"(^|/)(LICENSE|go\.(mod|sum)|\.gitignore)$|\.(md|json|pcap|txt|hex|golden|bin|svg)$|/(corpus|testdata)/"
)


def lint_files():
    missing, untidy = [], []
    for file in tracked():
        data = (ROOT / file).read_bytes()
        if b"\0" in data[:8000]:
            if len(data) > 1 << 20:
                untidy.append(f"{file}: a binary file of more than 1 MiB")
            continue
        text = data.decode(errors="replace")
        if not NO_SPDX.search(file) and "SPDX-License-Identifier: Apache-2.0" not in text[:400]:
            missing.append(file)
        if text and not text.endswith("\n"):
            untidy.append(f"{file}: no newline at the end")
        for number, line in enumerate(text.split("\n"), 1):
            if line != line.rstrip() and not file.endswith((".golden", "LICENSE")):
                untidy.append(f"{file}:{number}: white space at the end of the line")
            if line.startswith(("<<<<<<< ", ">>>>>>> ")):
                untidy.append(f"{file}:{number}: a conflict marker")
    count = complaints(missing, "no SPDX line")
    count += complaints(untidy, "untidy files")
    count += complaints([file for file, _ in rulers.broken()], "rulers of sections (make format)")
    return count


SUBJECT = re.compile(r"^[a-z0-9][a-z0-9/., _-]*: \S.{0,90}$")


def lint_commits():
    bad = []
    log = run("git", "log", "--no-merges", "--format=%h%x00%s%x00%b%x01", "-n", "200").stdout
    for entry in log.strip().split("\x01"):
        if not entry.strip():
            continue
        commit, subject, body = entry.strip().split("\0")
        if not SUBJECT.match(subject):
            bad.append(f"{commit}: the subject is not `area: what changes`: {subject}")
        if re.search(r"^co-authored-by:", body, re.M | re.I):
            bad.append(f"{commit}: names a co-author")
    return complaints(bad, "commit messages")


LINT = {
    "lint-c": ("C format", lint_c),
    "lint-go": ("Go format, vet and staticcheck", lint_go),
    "lint-python": ("Python style", lint_python),
    "lint-shell": ("shell scripts", lint_shell),
    "lint-files": ("licences and tidiness of all files", lint_files),
    "lint-documents": ("what documents name is there", documents.check),
    "lint-folders": ("each folder's README names its sources and what they include", folders.check),
    "lint-words": ("no retired words", words.check),
    "lint-scripts": ("each mechanism of TCP has scripts of segments", mechanisms.check),
    "lint-commits": ("commit messages", lint_commits),
}
