# SPDX-License-Identifier: Apache-2.0
"""A test that draws by chance has a short form for `make test` and a long one for `make soak`."""

import os

import pytest

IS_LONG = "SY_SOAK" in os.environ
has_long_form = pytest.mark.soak  # `make soak` runs these


def by_form(short, long):
    """Returns how often a test does what it does."""
    return long if IS_LONG else short
