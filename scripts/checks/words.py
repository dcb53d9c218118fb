# SPDX-License-Identifier: Apache-2.0
"""Words that the project no longer uses, because the field has another one.

A word is rejected in documents, and in names, messages and comments of C, Go and Python sources. It
counts as a part of a name too: `unproven` is in sessions_unproven and SessionsUnproven. To retire a
word, add it to RETIRED and each folder that still uses it to PENDING; remove the entry with the
last use.
"""

import re

from checks.base import ROOT, complaints, tracked

SOURCES = ("*.c", "*.h", "*.go", "*.py", "meson.build", "*.md", "docs/man/*")

# word, with its inflections: what to write instead
RETIRED = {
    "admit admits admitted": "accept; check (an access list)",
    "blur blurs blurred": "ambiguous (an RTT sample)",
    "desk desks": "work queue",
    "heir heirs": "successor",
    "keeper keepers": "supervisor",
    "mend mends": "fix",
    "nobody somebody": "no thread, another process, …",
    "proven unproven": "validated; embryonic (TCP), unreplied (UDP)",
    "shed sheds": "drop new sessions; overload",
}

# Retired as a part of a constant's name alone: "at most" is English, X_MOST is X_MAX.
CONSTANTS = {"LEAST": "MIN", "MOST": "MAX"}

# Folder or file: retired words that it still uses.
PENDING = {}

# Names that keep a word: the user `nobody`; metrics and keys of earlier builds.
NAMES = re.compile(
    r"=\s*nobody\b|[fF]orwarderUnproven|forwarder_unproven_sessions|SessionsUnproven"
    r"|sessions_unproven"
)

# These keep a word: names that others define, and compatibility with earlier versions.
EXEMPT = {
    "api": "wire format",
    "dataplane/sockets/include/sy_tcp.h": "earlier names",
    "CHANGELOG.md": "names of earlier builds",
}

REPLACEMENT = {word: text for words, text in RETIRED.items() for word in words.split()}


def pattern(words):
    """Matches the words as names and as parts of snake_case and CamelCase names."""
    lower, title = "|".join(sorted(words)), "|".join(w.title() for w in sorted(words))
    upper = lower.upper()
    return re.compile(
        rf"(?<![A-Za-z])(?:{lower})(?![a-z])|(?:{title})(?![a-z])|(?<![A-Za-z])(?:{upper})(?![A-Za-z])"
    )


def constants():
    """Matches CONSTANTS as names and as parts of names in capitals."""
    parts = "|".join(CONSTANTS)
    return re.compile(rf"(?<![A-Za-z0-9])(?:[A-Z0-9]+_)*({parts})(?=_[A-Z0-9]|(?![A-Za-z0-9_]))")


def is_below(file, folder):
    return file == folder or file.startswith(folder + "/")


def check():
    anything, constant = pattern(REPLACEMENT), constants()
    found = []
    for file in tracked(*SOURCES):
        if file == "scripts/checks/words.py" or any(is_below(file, e) for e in EXEMPT):
            continue
        pending = {w for f, words in PENDING.items() if is_below(file, f) for w in words.split()}
        for number, line in enumerate((ROOT / file).read_text().split("\n"), 1):
            for match in anything.finditer(NAMES.sub("", line)):
                word = match.group().lower()
                if word not in pending:
                    found.append(f"{file}:{number}: {word}: write {REPLACEMENT[word]}")
            for match in constant.finditer(line):
                part = match.group(1)
                found.append(f"{file}:{number}: {match.group()}: write {CONSTANTS[part]}")
    return complaints(found, "retired words (scripts/checks/words.py)")
