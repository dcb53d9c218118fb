# SPDX-License-Identifier: Apache-2.0
"""Checks that each folder with sources has a README.md. It names every source file in backticks,
and the folders that its sources may include or import:

    `file.c`, `file.[ch]`, `file_{one,two}.c`    no `*`: a new file has to be named
    Includes: `base`, `packet`                   of dataplane/; `sy_base.h` is in `base`
    Imports: `model`, `store`                    of internal/

A folder `include` is described by the README above it. In Go, `file_test.go` goes with `file.go`.
A module includes public headers of other modules only. Names of C files are unique in dataplane/.
"""

import re
from collections import defaultdict
from pathlib import PurePosixPath

from checks.base import ROOT, complaints, tracked

ROOTS = ("dataplane/", "internal/", "tests/", "bench/")
SOURCE = re.compile(r"\.(c|h|go|py)$")
DATA = re.compile(r"(^|/)(testdata|corpus)/")
CODE = re.compile(r"`([^`\n]+)`")
INCLUDE = re.compile(r'^#include (?:"([^"]+)"|<((?:\w+/)*sy_\w+\.h)>)', re.M)
LISTED = {
    "dataplane": re.compile(r"^Includes: (.*?)\.(?:\s|$)", re.M | re.S),
    "internal": re.compile(r"^Imports: (.*?)\.(?:\s|$)", re.M | re.S),
}
TESTS = re.compile(r"(^|/)(tests|dptest)(/|$)")  # tests may include what they test


def folder_of(file):
    """Returns the folder whose README names the file."""
    folder = PurePosixPath(file).parent
    return str(folder.parent if folder.name == "include" else folder)


def is_source(file):
    return file.startswith(ROOTS) and SOURCE.search(file) and not DATA.search(file)


def names(text):
    """Returns the file names in a README's backticks, patterns expanded."""
    found = set()
    for code in CODE.findall(text):
        many = [code]
        if braces := re.fullmatch(r"(.*)\{([^{}]*)\}(.*)", code):
            many = [braces[1] + middle + braces[3] for middle in braces[2].split(",")]
        for one in many:
            both = [one[:-4] + "c", one[:-4] + "h"] if one.endswith(".[ch]") else [one]
            found |= {PurePosixPath(name).name for name in both}
    return found


def unnamed(files, text):
    """Returns those of a folder's source files that its README does not name."""
    named, all_names = names(text), {PurePosixPath(file).name for file in files}
    for file in files:
        name = PurePosixPath(file).name
        goes_with = name.replace("_test.go", ".go")
        goes_alone = goes_with == name or goes_with not in all_names
        if name != "__init__.py" and name not in named and goes_alone:
            yield file


def headers(files):
    """Yields (file, header) for each of these C files and each header of the tree that it
    includes."""
    by_name = defaultdict(list)
    for file in files:
        by_name[PurePosixPath(file).name].append(file)
    for file in files:
        for quoted, public in INCLUDE.findall((ROOT / file).read_text(errors="replace")):
            name = quoted or public
            ends = [f for f in by_name[PurePosixPath(name).name] if f"/{f}".endswith(f"/{name}")]
            # Beside the file, in its module, in its part of the tree, elsewhere.
            nearest = (
                str(PurePosixPath(file).parent / name),
                module_of(file),
                file.split("/")[0],
                "",
            )
            found = [f for place in nearest for f in ends if f.startswith(place)]
            if found:
                yield file, found[0]


def module_of(file):
    return "/".join(file.split("/")[:2]) + "/"


def included(files):
    """Returns which of these folders the sources of each include: {folder: {folder: file and
    header}}."""
    found = defaultdict(dict)
    for file, header in headers(files):
        if folder_of(header) != folder_of(file):
            found[folder_of(file)].setdefault(folder_of(header), f"{file}: {header}")
    return found


def private(files):
    """Returns which private headers of other modules the modules of dataplane/ include."""
    for file, header in headers(files):
        inside = file.startswith("dataplane/") and not TESTS.search(folder_of(file))
        if inside and module_of(header) != module_of(file) and "/include/" not in header:
            yield f"{file} includes a private header: {header}"


def imported(files):
    """Returns the same for Go packages, without tests."""
    module = re.search(r"^module (\S+)", (ROOT / "go.mod").read_text(), re.M)[1]
    pattern = re.compile(rf'"{re.escape(module)}/(internal/[^"]+)"')
    found = defaultdict(dict)
    for file in files:
        if not file.endswith("_test.go"):
            for other in pattern.findall((ROOT / file).read_text()):
                if not other.startswith("internal/gen/"):
                    found[folder_of(file)].setdefault(other, f"{file}: {other}")
    return found


def repeated(files):
    """Yields the names that several C files of dataplane/ have."""
    by_name = defaultdict(list)
    for file in files:
        if file.startswith("dataplane/"):
            by_name[PurePosixPath(file).name].append(file)
    for name, places in sorted(by_name.items()):
        if len(places) > 1:
            yield f"several files are named {name}: {', '.join(places)}"


def unlisted(folder, seen, text):
    """Returns what a folder's sources include or import, and its README does not list."""
    root = folder.split("/")[0]
    if root not in LISTED or TESTS.search(folder):
        return
    listed = LISTED[root].search(text)
    if not listed:
        yield f"no line `{'Includes' if root == 'dataplane' else 'Imports'}: …`"
        return
    allowed = {f"{root}/{name}" for name in CODE.findall(listed[1])}
    yield from (f"not listed: {where}" for other, where in seen.items() if other not in allowed)


def complaints_of(sources):
    folders = defaultdict(list)
    for file in sources:
        folders[folder_of(file)].append(file)
    c_files = [f for f in sources if f.endswith((".c", ".h"))]
    seen = included(c_files)
    seen.update(imported([f for f in sources if f.endswith(".go")]))
    for folder, files in sorted(folders.items()):
        readme = ROOT / folder / "README.md"
        if not readme.is_file():
            yield f"{folder}: no README.md"
            continue
        text = readme.read_text()
        yield from (f"{folder}/README.md: does not name {file}" for file in unnamed(files, text))
        yield from (f"{folder}/README.md: {what}" for what in unlisted(folder, seen[folder], text))
    yield from private(c_files)
    yield from repeated(c_files)


def check():
    sources = [file for file in tracked() if is_source(file)]
    return complaints(list(complaints_of(sources)), "folders and their README.md")
