# SPDX-License-Identifier: Apache-2.0
"""The testbed of two processes: a silent generator is given up after its deadline."""

import pytest

from bench import machine, testbed


@pytest.fixture
def generator(tmp_path, monkeypatch):
    """Starts a generator made of shell lines."""
    started = []

    def start(*lines):
        program = tmp_path / "generator"
        program.write_text("\n".join(["#!/bin/sh", "echo core $2 >&2", *lines, ""]))
        program.chmod(0o755)
        monkeypatch.setattr(testbed, "GENERATOR", program)
        started.append(testbed.Generator(0, {}, tmp_path / "log"))
        return started[-1]

    yield start
    for child in started:
        child.close()
        assert child.child.poll() is not None


def test_generator_answers_line_by_line(generator):
    child = generator(
        'read asked; echo "{\\"asked\\": \\"$asked\\"}"',
        "read asked; printf '{\"half\": '; sleep 0.1; echo '1}'",
        'read asked; echo \'{"error": "no link"}\'',
    )
    assert child.ask("trial", rate="max", seconds=1) == {"asked": "trial rate=max seconds=1"}
    assert child.ask("line") == {"half": 1}
    with pytest.raises(machine.Failed, match=r"^up link=x: no link$"):
        child.ask("up", link="x")


def test_hanging_generator_times_out(generator):
    child = generator("read asked; printf half; read more")
    with pytest.raises(machine.Failed, match=r"(?s)'learn flows=5' within 0.2 s\ncore 0"):
        child.ask("learn", 0.2, flows=5)


def test_exited_generator_shows_its_error(generator):
    child = generator("read asked; echo no memory >&2")
    with pytest.raises(machine.Failed, match=r"(?s)ended over 'trial'\n.*no memory"):
        child.ask("trial")
    with pytest.raises(machine.Failed, match="ended"):
        child.ask("trial")
