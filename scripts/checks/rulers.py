# SPDX-License-Identifier: Apache-2.0
"""Rulers are comments that begin a section of a file, for example:

    # ---- values ----------------------------------------------------------------------------------

All end in the same column, also after a change of title. `make format` calls main(), which fixes
them.
"""

import re

from checks.base import ROOT, tracked

COLUMN = 100
LANGUAGES = ("*.c", "*.h", "*.go", "*.py", "*.proto", "meson.build", "*/meson.build")
RULER = re.compile(r"^( *)(/\*|//|#) -{4,} (\S.*?)(?: -{4,})?( \*/)?$")
# clang-format moves the end of a long ruler to a line of its own.
CUT = re.compile(r"^(/\* -{4,} .*[^-/])\n \* -{4,} \*/$", re.M)


def fixed(line):
    """Returns the line with a ruler filled, any other line unchanged."""
    found = RULER.match(line)
    if not found:
        return line
    indent, start, title, end = found.groups(default="")
    line = f"{indent}{start} ---- {title} "
    return line + "-" * (COLUMN - len(line) - len(end)) + end


def fixed_text(text):
    return "\n".join(map(fixed, CUT.sub(r"\1 */", text).split("\n")))


def broken():
    """Yields each file with broken rulers, and its fixed text."""
    for file in tracked(*LANGUAGES):
        text = (ROOT / file).read_text()
        if (right := fixed_text(text)) != text:
            yield file, right


def main():
    for file, right in broken():
        (ROOT / file).write_text(right)


if __name__ == "__main__":
    main()
