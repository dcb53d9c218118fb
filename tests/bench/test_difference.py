# SPDX-License-Identifier: Apache-2.0
"""The time beyond the baseline: a run if there is any, otherwise a message."""

from bench import run_latency, run_wire

PARAMS = {"family": "IPv4", "sessions": 1000}


def test_time_beyond_macswap_is_a_run(capsys):
    run = run_wire.record(PARAMS, "beyond macswap", "ns/packet", 8.5)
    assert list(run_wire.difference(run)) == [run]
    assert capsys.readouterr().out == ""


def test_no_time_beyond_macswap_prints_a_message(capsys):
    run = run_latency.record(PARAMS, "added p50", -0.25)
    assert list(run_wire.difference(run)) == []
    said = capsys.readouterr().out
    assert "added p50, µs: -0.25: left out, macswap took longer" in said and "sessions 1 k" in said
