# SPDX-License-Identifier: Apache-2.0
"""The check of documents notices what is not there, and nothing else."""

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
NO = "no" + "whither"  # a word of no source, not even of this one
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
def test_what_is_there(code):
    assert not list(documents.missing_in_code(code, ""))


@pytest.mark.parametrize("code", MISSING)
def test_what_is_missing(code):
    assert list(documents.missing_in_code(code, "")) == [MISSING[code]]


def test_a_name_alone_is_of_the_folder_before_it():
    assert not list(documents.missing_in_code("slot.c", "base"))
    assert list(documents.missing_in_code("slot.c", "packet")) == ["no file packet/slot.c"]


def test_names_in_the_readme_of_a_folder():
    for name in ("slot.c", "{addr,slot}.c", "slot.[ch]", "sy_base.h", "../packet/parse.c"):
        assert documents.has_file(name, "dataplane/base"), name
    for name in ("parse.c", "{parse,slot}.c", "session*.c", "../packet/slot.c"):
        assert not documents.has_file(name, "dataplane/base"), name
    assert not list(documents.stale_in("dataplane/base/README.md"))


def test_links():
    assert documents.missing_link("docs/testing.md", "../README.md") is None
    assert documents.missing_link("docs/testing.md", "testing.md#the-lab") is None
    assert documents.missing_link("docs/testing.md", "https://example.org/nowhere") is None
    assert documents.missing_link("docs/testing.md", "README.md")
    assert documents.missing_link("docs/testing.md", "#no-such-heading")


def test_a_link_to_one_of_two_equal_headings(tmp_path):
    document = tmp_path / "one.md"
    document.write_text("# One\n## services\n## services\n```yaml\n# One\n```\n")
    assert documents.missing_link(document, "#one") is None
    assert documents.missing_link(document, "#services") == "several headings #services"
