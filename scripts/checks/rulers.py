# SPDX-License-Identifier: Apache-2.0
"""Rulers are comments that begin a section of a file, for example:

    # ---- values ----------------------------------------------------------------------------------

All end in the same column, so that none looks broken after its title was changed. `make format`
calls main(), which mends them.
"""

import re

from checks.base import ROOT, tracked

COLUMN = 100
LANGUAGES = ("*.c", "*.h", "*.go", "*.py", "*.proto", "meson.build", "*/meson.build")
RULER = re.compile(r"^( *)(/\*|//|#) -{4,} (\S.*?)(?: -{4,})?( \*/)?$")
# clang-format moves the end of a ruler that is too long to a line of its own.
CUT = re.compile(r"^(/\* -{4,} .*[^-/])\n \* -{4,} \*/$", re.M)


def mended(line):
    """The line as it ought to be: a ruler that fills it, anything else unchanged."""
    found = RULER.match(line)
    if not found:
        return line
    indent, start, title, end = found.groups(default="")
    line = f"{indent}{start} ---- {title} "
    return line + "-" * (COLUMN - len(line) - len(end)) + end


def mended_text(text):
    return "\n".join(map(mended, CUT.sub(r"\1 */", text).split("\n")))


def broken():
    """Yields each file with rulers to mend, and its mended text."""
    for file in tracked(*LANGUAGES):
        text = (ROOT / file).read_text()
        if (right := mended_text(text)) != text:
            yield file, right


def main():
    for file, right in broken():
        (ROOT / file).write_text(right)


if __name__ == "__main__":
    main()
