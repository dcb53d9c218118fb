# SPDX-License-Identifier: Apache-2.0
"""Randomised tests have a short form for `make test` and a long one for `make soak`."""

import os

import pytest

IS_LONG = "SY_SOAK" in os.environ
has_long_form = pytest.mark.soak  # `make soak` runs these


def by_form(short, long):
    """Returns the number of repetitions of a test."""
    return long if IS_LONG else short
