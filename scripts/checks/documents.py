# SPDX-License-Identifier: Apache-2.0
"""Checks that code in backticks and links of documents exist in the tree:

    `path/file.c`, `file.c`      a tracked file whose path ends so; `_part.c`: whose name ends so
    `folder/`                    a folder
    `object_verb()`, `SY_MACRO`  words of the sources
    `--option`                   an option that a source names
    `make target`                a target of the Makefile
    [text](file#heading)         a file, from the document's folder, and a heading of it

A row of ARCHITECTURE.md's tables that names a function and a file: the file has the function.
docs/troubleshooting.md names each drop reason.

In a folder's README, bare file names are in that folder, except `sy_*.h` and documents.
In comments of C, only names of files: of the same module, or public headers and documents.
"""

import fnmatch
import functools
import re
from pathlib import Path, PurePosixPath

from checks.base import ROOT, complaints, tracked

DOCUMENTS = ("*README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "docs/**/*.md", "docs/*.md")
FOLDERS = ("dataplane/", "internal/", "tests/", "bench/")
SOURCES = ("*.c", "*.h", "*.go", "*.py", "*.proto", "*.build", "*.service", "*.env", "*.yaml",
           "Makefile", "scripts/*", ".ci/*")  # fmt: skip
KINDS = r"(?:c|h|go|py|proto|md|sh|build|golden|service|env|yaml|txt|svg|json)"
# Names of other projects or the kernel, and placeholders.
ELSEWHERE = {
    *("cmocka.h", "linux/if.h", "net/if.h", "bench/run_NAME.py"),
    *("bpf_link", "bpf_fib_lookup", "rte_fib", "tcp_validate_incoming"),
    *("ignore_routes_with_linkdown", "tcp_rfc1337", "conn_reuse_mode", "expire_quiescent_template"),
    *("sorry_server", "fnat_in", "nat_out"),
    *("linux/bpf.h", "IP_PMTUDISC_OMIT", "rte_ip_frag", "XDP_USE_SG"),
}
# Uses the words of other balancers: only files and links are checked.
TRANSLATIONS = ("docs/moving.md",)

FENCE = re.compile(r"^ *```.*?^ *```", re.M | re.S)
CODE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(rf"[\w./*\[\]{{}},-]*\.(?:{KINDS}|\[ch\])")
FUNCTION = re.compile(r"([\w.]+)\(\)")
CONSTANT = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:_[A-Za-z0-9]+)+|struct (\w+)")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z-]+")
MAKE = re.compile(r"make ([a-z][a-z-]*(?: [a-z][a-z-]*)*)")
COMMENT = re.compile(r"/\*.*?\*/|//[^\n]*", re.S)
NAMED = re.compile(r"(?<![\w./<*-])([\w/-]+\.(?:c|h|md|go|py))\b(?!\()")
ROW = re.compile(r"^\|[^|]*\|([^|]*\w\(\)[^|]*)\|([^|]*`[\w./-]+\.(?:c|h|go)`[^|]*)\|$", re.M)
PATH = re.compile(r"(?<![\w./<*~-])([\w-]+/[\w/-]+\.(?:c|h|md|go|py|proto|golden))\b")


@functools.cache
def files():
    return tracked()


@functools.cache
def ends():
    """Returns each tracked file's path, and all suffixes of it."""
    parts = [file.split("/") for file in files()]
    return {"/".join(one[at:]) for one in parts for at in range(len(one))}


@functools.cache
def words():
    """Returns every word of the sources."""
    text = "\n".join((ROOT / file).read_text(errors="replace") for file in tracked(*SOURCES))
    return set(re.findall(r"\w+", text)), set(OPTION.findall(text)), text


@functools.cache
def has_file(name, folder=""):
    """Returns whether a tracked file, or files of a pattern, have this path or end in it; anywhere
    below a folder, if given."""
    if name.startswith("../"):
        folder = ""
    name = re.sub(r"^(\.{1,2}/)+", "", name)
    if braces := re.fullmatch(r"(.*)\{(.*)\}(.*)", name):
        return all(has_file(braces[1] + one + braces[3], folder) for one in braces[2].split(","))
    if folder and "/" not in name:
        part = f"*{name}" if name.startswith("_") else f"*/{name}"
        within = [f"/{file}" for file in files() if f"/{folder}/" in f"/{file}"]
        return any(fnmatch.fnmatch(file, part) for file in within)
    if name.startswith("_"):
        return any(file.endswith(name) for file in files())
    if not re.search(r"[*?\[]", name):
        return name in ends()
    return any(
        fnmatch.fnmatch(file, name) or fnmatch.fnmatch(file, f"*/{name}") for file in files()
    )


def is_elsewhere(name):
    return name in ELSEWHERE or name.startswith(("/", "~", "build/", ".venv/", "<"))


def missing_in_code(code, folder):
    """Returns what a piece of code in a document names and the tree lacks. A bare file name belongs
    to the folder named before it on the same line, or to the README's folder."""
    sources, options, text = words()
    if FILE.fullmatch(code) and not is_elsewhere(code) and not has_file(code, folder):
        yield f"no file {folder and folder + '/'}{code}"
    if re.fullmatch(r"[\w./-]+/", code) and not is_elsewhere(code) and not has_file(code + "*"):
        yield f"no folder {code}"
    for function in FUNCTION.findall(code):
        if function not in ELSEWHERE and function.split(".")[-1] not in sources:
            yield f"no function {function}()"
    if constant := CONSTANT.fullmatch(code):
        name = constant[1] or code
        if name not in ELSEWHERE and name not in sources:
            yield f"nothing is named {name}"
    for option in OPTION.findall(code):
        bare = option.removeprefix("--")
        if option not in ELSEWHERE | options and f'"{bare}"' not in text:
            yield f"no option {option}"
    if make := MAKE.match(code):
        targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M)
        yield from (f"no make target {one}" for one in make[1].split() if one not in targets)


def heading_id(line):
    return re.sub(r"[^\w -]", "", line.lstrip("#").strip().lower()).replace(" ", "-")


def missing_link(document, link):
    """Returns why a link leads nowhere, or None."""
    if "://" in link or link.startswith("mailto:"):
        return None
    path, _, heading = link.partition("#")
    target = ROOT / PurePosixPath(document).parent / path if path else ROOT / document
    if not target.exists():
        return f"no file {link}"
    if heading and target.suffix == ".md":
        lines = re.findall(r"^#+ .*", FENCE.sub("", target.read_text()), re.M)
        ids = [heading_id(one) for one in lines]
        if heading not in ids:
            return f"no heading {link}"
        if ids.count(heading) > 1:
            return f"several headings {link}"
    return None


def line_of(text, match):
    return text.count("\n", 0, match.start()) + 1


def numbered(text, pattern):
    """Yields (line number, match) of all matches outside code blocks."""
    plain = FENCE.sub(lambda block: re.sub(r"[^\n]", " ", block[0]), text)
    for match in pattern.finditer(plain):
        yield line_of(plain, match), match


def stale_in(document):
    text = (ROOT / document).read_text()
    own = str(PurePosixPath(document).parent) if document.startswith(FOLDERS) else ""
    at, folder = 0, own
    for line, code in numbered(text, CODE):
        folder = folder if line == at else own
        within = "" if own and re.match(r"sy_\w+\.h$", code[1]) else folder
        if document not in TRANSLATIONS:
            yield from (f"{document}:{line}: {what}" for what in missing_in_code(code[1], within))
        if not own and FILE.fullmatch(code[1]) and "/" in code[1] and not is_elsewhere(code[1]):
            folder = str(PurePosixPath(code[1]).parent)
        at = line
    for path in PATH.finditer(text):
        if not is_elsewhere(path[1]) and not has_file(path[1]):
            yield f"{document}:{line_of(text, path)}: no file {path[1]}"
    for line, link in numbered(text, LINK):
        if what := missing_link(document, link[1]):
            yield f"{document}:{line}: {what}"


def named_files(cell):
    """The tracked files of a cell of a table; names alone are of the folder of the name before."""
    folder = ""
    for name in CODE.findall(cell):
        path = name if "/" in name else f"{folder}/{name}"
        folder = path.rpartition("/")[0]
        yield from (file for file in files() if f"/{file}".endswith(f"/{path}"))


def misplaced_in(text):
    """(line, function) of the rows whose files do not have the function that the row names."""
    for row in ROW.finditer(text):
        sources = "\n".join((ROOT / file).read_text() for file in named_files(row[2]))
        for function in FUNCTION.findall(row[1]):
            if not re.search(rf"\b{function.split('.')[-1]}\(", sources):
                yield line_of(text, row), function


def unexplained(drops, guide):
    """The names of SY_DROPS that the guide does not have."""
    names = re.findall(r'^\s*X\(\w+, "([a-z0-9-]+)"', drops, re.M)
    return [name for name in names if name != "none" and f"`{name}`" not in guide]


@functools.cache
def defined():
    """Returns every word of C outside comments."""
    texts = ((ROOT / file).read_text(errors="replace") for file in tracked("*.c", "*.h"))
    return set(re.findall(r"\w+", "\n".join(COMMENT.sub("", text) for text in texts)))


def stale_in_comments(file):
    text = (ROOT / file).read_text()
    folder = "/".join(PurePosixPath(file).parent.parts[:2])  # of the module
    for comment in COMMENT.finditer(text):
        for function in re.finditer(r"\b(\w*_\w+)\(\)", comment[0]):
            if function[1] not in ELSEWHERE and function[1] not in defined():
                line = text.count("\n", 0, comment.start() + function.start()) + 1
                yield f"{file}:{line}: no function {function[1]}()"
        for named in NAMED.finditer(comment[0]):
            anywhere = named[1].startswith("sy_") or named[1].endswith(".md")
            if not is_elsewhere(named[1]) and not has_file(named[1], "" if anywhere else folder):
                line = text.count("\n", 0, comment.start() + named.start()) + 1
                yield f"{file}:{line}: no file {named[1]}"


def check():
    documents = [file for file in tracked(*DOCUMENTS) if Path(file).suffix == ".md"]
    count = complaints([s for file in documents for s in stale_in(file)], "stale documents")
    rows = misplaced_in((ROOT / "ARCHITECTURE.md").read_text())
    count += complaints(
        [f"ARCHITECTURE.md:{line}: {name}() is not in that file" for line, name in rows],
        "functions in another file",
    )
    drops = (ROOT / "dataplane/base/include/sy_base.h").read_text()
    guide = ROOT / "docs/troubleshooting.md"
    count += complaints(unexplained(drops, guide.read_text()), f"drop reasons not in {guide.name}")
    comments = [s for file in tracked("*.c", "*.h") for s in stale_in_comments(file)]
    count += complaints(comments, "stale comments")
    return count
