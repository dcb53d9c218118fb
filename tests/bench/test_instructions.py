# SPDX-License-Identifier: Apache-2.0
"""Instructions of a packet, counted by valgrind."""

import pytest

from bench import instructions, machine


def test_a_packet_takes_some_hundred_instructions():
    assert 100 < instructions.per_packet(machine.ROOT / "build/dev", "dr", "4") < 2000


def test_unknown_modes_are_refused(capsys):
    with pytest.raises(SystemExit):
        instructions.main(["dnat"])
    assert "there is no mode dnat: use fnat" in capsys.readouterr().err
