# SPDX-License-Identifier: Apache-2.0
"""The Makefile's demos exist, and unknown ones are refused with a list."""

import importlib
import re
import subprocess

from checks.base import ROOT


def make(*words):
    command = ["make", "-C", ROOT, "--no-print-directory", *words]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def demos():
    return re.search(r"^DEMOS *:= (.*)$", (ROOT / "Makefile").read_text(), re.M)[1].split()


def test_every_demo_exists_and_is_in_the_help():
    listed = make("help").stdout
    for name in demos():
        about = importlib.import_module(f"tests.demo.{name}").__doc__
        command = "make demo" if name == "first_light" else f"make demo DEMO={name}"
        assert f"`{command}`" in about
        assert command in listed
        assert make("-n", "demo", f"DEMO={name}").returncode == 0


def test_unknown_demo_is_refused():
    for name in ("limit", "show"):  # a missing module, and a module that is no demo
        done = make("-n", "demo", f"DEMO={name}")
        assert done.returncode
        assert f"there is no demo {name}: use DEMO={' or '.join(demos())}" in done.stderr
