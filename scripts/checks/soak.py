# SPDX-License-Identifier: Apache-2.0
"""The long forms of randomised tests: hours, for `make soak`."""

from checks.base import Count, check_of, run
from checks.suites import pytest_suite, test_fuzz

FUZZ_S = 600  # per target
GO = {
    "TestChaos": ("-chaos", "10m"),
    "TestTheLastOrderIsInForce": ("-drain-steps", "250"),
}


def soak_traffic():
    return pytest_suite("soak-traffic", "-m", "soak", "tests/wire", env={"SY_SOAK": "1"})


def soak_controller():
    """Faults of controllers, agents and etcds, with fake forwarders."""
    count = Count()
    command = ("go", "test", "-count=1", "-timeout", "2h", "./internal/controller")
    for test, words in GO.items():
        count += check_of(run(*command, "-run", test, *words), test)
    return count


def soak_fuzz():
    return test_fuzz(FUZZ_S)


def soak_talk():
    """Ten million conversations of two stacks; resumable, see scripts/talk."""
    return check_of(run("scripts/talk"), "scripts/talk")


def soak_interop():
    """A gigabyte a connection over every bad link, against Linux's TCP."""
    test = "tests/wire/test_stack_interop.py"
    return pytest_suite("soak-interop", test, env={"SY_INTEROP_MB": "1000"})


SOAK = {
    "soak-traffic": ("long forms of tests of traffic", [soak_traffic]),
    "soak-controller": ("faults of controllers, for minutes", [soak_controller]),
    "soak-fuzz": ("fuzz targets, ten minutes each", [soak_fuzz]),
    "soak-talk": ("ten million conversations of two stacks", [soak_talk]),
    "soak-interop": ("a gigabyte a connection over bad links", [soak_interop]),
}
