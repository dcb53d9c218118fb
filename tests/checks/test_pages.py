# SPDX-License-Identifier: Apache-2.0
"""Labs of a process use no more huge pages than its share, and keep their choice."""

import pytest

from tests.lab import pages


@pytest.fixture
def free(monkeypatch):
    monkeypatch.setattr(pages, "_granted", {})
    monkeypatch.setattr(pages.Pool, "free", lambda _: 500)


def test_labs_share_their_process_budget(free, monkeypatch):
    monkeypatch.setenv(pages.BUDGET, "200")
    assert pages.grant("first", 160)
    assert not pages.grant("second", 160)
    assert pages.grant("first", 160)
    pages.release("first")
    assert not pages.grant("second", 160)  # its sessions use small pages
    assert pages.grant("third", 160)


def test_free_pages_count_without_a_budget(free):
    assert pages.grant("first", 160)
    assert pages.grant("second", 160)
    assert not pages.grant("third", 400)
