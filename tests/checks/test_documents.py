# SPDX-License-Identifier: Apache-2.0
"""The check of documents reports missing names, and nothing else."""

import pytest
from checks import documents

FOUND = (
    "scripts/check",
    "dataplane/base/slot.c",
    "base/slot.c",
    "tests/wire/",
    "/etc/steelyard/steelyard.yaml",
    "sy_path_lookup()",
    "steelyard.cli()",
    "SY_PATH_NONE",
    "struct sy_addr",
    "--workers",
    "make setup build",
)
NO = "no" + "whither"  # a word of no source, including this one
MISSING = {
    f"base/{NO}.c": f"no file base/{NO}.c",
    f"tests/{NO}/": f"no folder tests/{NO}/",
    f"sy_{NO}()": f"no function sy_{NO}()",
    f"SY_{NO.upper()}": f"nothing is named SY_{NO.upper()}",
    f"struct sy_{NO}": f"nothing is named sy_{NO}",
    f"steelyard apply --{NO}": f"no option --{NO}",
    f"make build {NO}": f"no make target {NO}",
}


@pytest.mark.parametrize("code", FOUND)
def test_existing_names_pass(code):
    assert not list(documents.missing_in_code(code, ""))


@pytest.mark.parametrize("code", MISSING)
def test_missing_names_are_reported(code):
    assert list(documents.missing_in_code(code, "")) == [MISSING[code]]


def test_bare_name_belongs_to_the_folder_before_it():
    assert not list(documents.missing_in_code("slot.c", "base"))
    assert list(documents.missing_in_code("slot.c", "packet")) == ["no file packet/slot.c"]


def test_functions_of_a_row_are_in_its_files():
    right = "| name | `sy_drop_name()` | `packet/parse.c`, `base/drop.c` |\n"
    assert not list(documents.misplaced_in(right))
    wrong = right.replace("base/drop.c", "checksum.c")  # of the folder before it
    assert list(documents.misplaced_in("text\n" + wrong)) == [(2, "sy_drop_name")]


def test_drop_reasons_that_the_guide_lacks_are_reported():
    drops = '\tX(NONE, "none", "…") \\\n\tX(LAND, "land", "…") \\\n\tX(VLAN, "vlan",'
    assert documents.unexplained(drops, "`vlan`") == ["land"]


def test_bare_names_in_a_readme_belong_to_its_folder():
    for name in ("slot.c", "{addr,slot}.c", "slot.[ch]", "sy_base.h", "../packet/parse.c"):
        assert documents.has_file(name, "dataplane/base"), name
    for name in ("parse.c", "{parse,slot}.c", "session*.c", "../packet/slot.c"):
        assert not documents.has_file(name, "dataplane/base"), name
    assert not list(documents.stale_in("dataplane/base/README.md"))


def test_broken_links_are_reported():
    assert documents.missing_link("docs/testing.md", "../README.md") is None
    assert documents.missing_link("docs/testing.md", "testing.md#the-lab") is None
    assert documents.missing_link("docs/testing.md", "https://example.org/nowhere") is None
    assert documents.missing_link("docs/testing.md", "missing.md")
    assert documents.missing_link("docs/testing.md", "#no-such-heading")


def test_repeated_heading_has_a_numbered_link(tmp_path):
    document = tmp_path / "one.md"
    document.write_text("# One\n## services\n## services\n```yaml\n# One\n```\n")
    assert documents.missing_link(document, "#one") is None
    assert documents.missing_link(document, "#services") == "several headings #services"
