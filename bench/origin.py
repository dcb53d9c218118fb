# SPDX-License-Identifier: Apache-2.0
"""Where figures come from: the commit that was measured, the date, the machine, full or quick.

Each run writes this as NAME.origin.json beside its results. `make bench-docs` puts it into the
page, in a comment, and as the page's first paragraph.
"""

import datetime
import json
import re
import subprocess

from bench import machine

COMMENT = re.compile(r"^<!-- origin (\{.*\}) -->$", re.M)
CODE = ("dataplane", "internal", "cmd", "api", ":!*.md", ":!*/tests/*", ":!*_test.go")
OLDER = "**Older code**: it has changed since. "


def git(*arguments):
    command = ["git", "-C", machine.ROOT, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def commit():
    """The commit being measured; it ends in -dirty if the tree differs from it."""
    return git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*").stdout.strip()


def now(quick):
    """The origin of what runs now."""
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return {"commit": commit(), "date": today, "quick": quick, "machine": machine.describe()}


def is_older(origin):
    """Whether the code has changed since, or is not known."""
    measured = origin["commit"]
    if not re.fullmatch(r"[0-9a-f]{40}", measured):
        return True
    return git("diff", "--quiet", measured, "HEAD", "--", *CODE).returncode != 0


def of_commit(measured):
    """`measured` as a reader of a page gets it."""
    sha, _, changed = measured.partition("-")
    return f"commit {sha[:12]}" + (" with changes" if changed else "")


def paragraph(name, origin, older=False):
    """A page's first paragraph, and the comment from which read() gets the origin again."""
    kind, quick = ("Quick", " QUICK=1") if origin["quick"] else ("Full", "")
    # Pages of earlier builds: only the commit that published them is known.
    published = origin.get("published", "")
    measured = f"code before {of_commit(published)}" if published else of_commit(origin["commit"])
    return (
        f"<!-- origin {json.dumps(origin)} -->\n"
        f"**{kind} run** of {measured}, {origin['date']}, on "
        + "{processor}, {cores} cores, {memory_gb} GB of memory, Linux {kernel}".format(
            **origin["machine"]
        )
        + f". {OLDER if older else ''}By\n"
        f"`make bench BENCH={name}{quick}`, written by `make bench-docs`;\n"
        "[docs/benchmarks.md](../benchmarks.md) says what is measured, and how.\n"
    )


def read(page):
    """The origin of a page's figures."""
    return json.loads(COMMENT.search(page)[1])


def renewed(name, page):
    """The page with its first paragraph written again: its code may be older now."""
    origin = read(page)
    title, _, rest = page.partition("\n\n")
    _, _, rest = rest.partition("\n\n")
    return f"{title}\n\n{paragraph(name, origin, is_older(origin))}\n{rest}"
