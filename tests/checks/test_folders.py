# SPDX-License-Identifier: Apache-2.0
"""The check of folders reports what their READMEs lack, and nothing else."""

import pytest
from checks import folders

README = """# dataplane/one

`a.[ch]`, `b_{c,d}.c`, `sy_one.h`, `../tests/other.c`

Includes: `base`, `two/three`;
DPDK. Not `four`.
"""


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A temporary tree in place of this one; the returned function writes files and checks them."""
    monkeypatch.setattr(folders, "ROOT", tmp_path)
    (tmp_path / "go.mod").write_text("module x\n")

    def check(files):
        for name, text in files.items():
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text(text)
        return sorted(folders.complaints_of(sorted(filter(folders.is_source, files))))

    return check


def test_this_tree_passes():
    count = folders.check()
    assert not count.failed, count.notes


def test_missing_readme_is_reported(tree):
    assert tree({"tests/one/a.py": ""}) == ["tests/one: no README.md"]
    assert tree({"tests/one/README.md": "`a.py`"}) == []
    assert tree({"docs/one/a.py": "", "internal/one/testdata/a.go": ""}) == [], "no such folders"


def test_readme_names_are_expanded():
    have = ["a.c", "a.h", "b_c.c", "b_d.c", "include/sy_one.h"]
    assert not list(folders.unnamed([f"dataplane/one/{name}" for name in have], README))
    for lacks in ("b.c", "b_e.c", "b_c.h", "a.py"):
        assert list(folders.unnamed([f"dataplane/one/{lacks}"], README))
    assert list(folders.unnamed(["tests/one/a.c"], "`*.c`, a.c")) == ["tests/one/a.c"]


def test_go_test_files_belong_to_their_sources():
    assert not list(folders.unnamed(["internal/one/a.go", "internal/one/a_test.go"], "`a.go`"))
    alone = "internal/one/b_test.go"
    assert list(folders.unnamed(["internal/one/a.go", alone], "`a.go`")) == [alone]


def test_include_folder_belongs_to_the_one_above():
    assert folders.folder_of("dataplane/one/include/sy_one.h") == "dataplane/one"
    assert folders.folder_of("dataplane/one/two/a.h") == "dataplane/one/two"


def test_unlisted_includes_are_reported(tree):
    files = {
        "dataplane/one/README.md": README + "`e.c`",
        "dataplane/one/e.c": '#include <sy_four.h>\n#include "a.h"\n#include "three/x.h"\n',
        "dataplane/one/a.h": "#include <stdio.h>\n#include <sy_base.h>\n",
        "dataplane/base/README.md": "`sy_base.h`\n\nIncludes: none.\n",
        "dataplane/base/include/sy_base.h": "",
        "dataplane/four/README.md": "`sy_four.h`\n\nIncludes: none.\n",
        "dataplane/four/include/sy_four.h": "",
        "dataplane/two/three/README.md": "`x.h`\n\nIncludes: none.\n",
        "dataplane/two/three/x.h": "",
    }
    assert tree(files) == [
        "dataplane/one/README.md: not listed: dataplane/one/e.c: dataplane/four/include/sy_four.h",
        "dataplane/one/e.c includes a private header: dataplane/two/three/x.h",
    ]
    files["dataplane/one/e.c"] = '#include "a.h"\n'
    assert tree(files) == []
    files["dataplane/one/README.md"] = "`a.h`, `e.c`"
    assert tree(files) == ["dataplane/one/README.md: no line `Includes: …`"]


def test_tests_may_include_what_they_test(tree):
    files = {
        "dataplane/one/README.md": "`a.h`\n\nIncludes: none.\n",
        "dataplane/one/a.h": "",
        "dataplane/two/tests/README.md": "`test_a.c`",
        "dataplane/two/tests/test_a.c": '#include "a.h"\n',
    }
    assert tree(files) == []


def test_repeated_names_of_c_files_are_reported(tree):
    files = {
        "dataplane/one/README.md": "`a.h`, `check.c`\n\nIncludes: none.\n",
        "dataplane/one/a.h": "",
        "dataplane/one/check.c": "",
        "dataplane/one/tests/README.md": "`check.c`",
        "dataplane/one/tests/check.c": "",
        "tests/one/README.md": "`a.h`",
        "tests/one/a.h": "",
    }
    assert tree(files) == [
        "several files are named check.c: dataplane/one/check.c, dataplane/one/tests/check.c"
    ]


def test_unlisted_imports_are_reported(tree):
    files = {
        "internal/a/README.md": "`a.go`\n\nImports: `b`.\n",
        "internal/a/a.go": 'import (\n\t"x/internal/b"\n\t"x/internal/gen/p"\n)\n',
        "internal/a/a_test.go": 'import "x/internal/c"\n',
        "internal/b/README.md": "`b.go`\n\nImports: none.\n",
        "internal/b/b.go": "",
    }
    assert tree(files) == []
    files["internal/b/b.go"] = 'import "x/internal/c"\n'
    assert tree(files) == ["internal/b/README.md: not listed: internal/b/b.go: internal/c"]
