# SPDX-License-Identifier: Apache-2.0
"""`make install` places man pages and documents as Debian's users expect."""

import re
import subprocess

import pytest
from checks.base import ROOT
from checks.documents import FENCE, LINK

LIBRARIES = ("libsteelyard-tcp.so", "libsteelyard-tcp.so.0", "libsteelyard-tcp.so.0.1.0")
BUILT = (
    "steelyard",
    "dataplane/forwarder/steelyard-forwarder",
    "dataplane/preload/steelyard-supervisor",
    "dataplane/preload/libsteelyard-preload.so",
    "bench/load/steelyard-load",
    *(f"dataplane/sockets/{name}" for name in LIBRARIES),
)


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """Returns the files below /usr of a package."""
    root = tmp_path_factory.mktemp("package")
    # Missing binaries do not matter here.
    stage = root / "built"
    for name in BUILT:
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).touch()
    command = ["make", "-C", ROOT, "install", f"DESTDIR={root}/to", "PREFIX=/usr"]
    command += [f"BIN={stage}", f"BUILT={stage}"]
    subprocess.run(command, check=True, capture_output=True)
    return root / "to"


def test_manual_pages_are_installed(installed):
    pages = {f"man{page.suffix[1:]}/{page.name}" for page in (ROOT / "docs/man").iterdir()}
    assert {"man1/steelyard.1", "man5/steelyard.yaml.5", "man8/steelyard-forwarder.8"} <= pages
    man = installed / "usr/share/man"
    assert {str(page.relative_to(man)) for page in man.glob("*/*")} == pages


def test_documents_are_installed_with_working_links(installed):
    docs = installed / "usr/share/doc/steelyard"
    for name in ("copyright", "CHANGELOG.md", "examples/steelyard.yaml", "docs/limits.md"):
        assert (docs / name).is_file(), name
    documents = list(docs.rglob("*.md"))
    guides = set((ROOT / "docs").glob("*.md"))
    assert {one.name for one in guides} <= {one.name for one in documents}
    dead = []
    for document in documents:
        for link in LINK.findall(FENCE.sub("", document.read_text())):
            path = link.partition("#")[0]
            if path and "://" not in link and not (document.parent / path).exists():
                dead.append(f"{document.relative_to(docs)}: {link}")
    assert not dead


def test_files_named_by_man_pages_are_installed(installed):
    text = "".join(page.read_text() for page in installed.glob("usr/share/man/*/*"))
    named = set(re.findall(r"\bdocs/[\w./-]+\.md", text.replace("\\-", "-")))
    assert named, "no guide is named"
    assert all((installed / "usr/share/doc/steelyard" / name).is_file() for name in named), named


def test_programs_are_installed(installed):
    for name in ("bin/steelyard", "bin/steelyard-load", "sbin/steelyard-forwarder"):
        assert (installed / "usr" / name).is_file(), name
    for name in ("lib/pkgconfig/steelyard-tcp.pc", *(f"lib/{name}" for name in LIBRARIES)):
        assert (installed / "usr" / name).is_file(), name


def test_uninstall_removes_all_files(installed):
    command = ["make", "-C", ROOT, "uninstall", f"DESTDIR={installed}", "PREFIX=/usr"]
    subprocess.run(command, check=True, capture_output=True)
    left = [one.relative_to(installed) for one in installed.rglob("*") if not one.is_dir()]
    assert {one.parts[0] for one in left} == {"etc"}, left
