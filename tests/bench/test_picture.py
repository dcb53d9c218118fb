# SPDX-License-Identifier: Apache-2.0
"""Pictures: complete, deterministic, with all labels."""

import xml.etree.ElementTree as ET

import pytest

from bench import picture, report


def rows(baseline=True):
    runs = [
        {
            "bench": "b",
            "params": {"mode": mode, "sessions": sessions, "family": family},
            "metric": "cost",
            "unit": "ns/packet",
            "value": value + spread,
            **({"baseline": {"name": "two lines", "value": 5}} if baseline else {}),
        }
        for mode in ("fnat", "nat")
        for family in ("IPv4", "IPv6")
        for sessions, value in ((1, 10), (1000, 20), (10_000_000, 70))
        for spread in (0, 1, 4)
    ]
    return report.rows(runs)


def words(file):
    root = ET.parse(file).getroot()
    return {text.text.strip() for text in root.iter("{http://www.w3.org/2000/svg}text")}


DRAW = [
    (picture.lines, "sessions", ["mode"], {1000: 30}),
    (picture.bars, "mode", ["sessions"], {"nat": 30}),
]


@pytest.mark.parametrize(("draw", "x", "series", "goals"), DRAW)
def test_picture_shows_all_labels(tmp_path, draw, x, series, goals):
    draw(tmp_path / "b.svg", "what a packet costs", rows(), x, series, ["family"], goals)
    said = words(tmp_path / "b.svg")
    assert {"what a packet costs", "cost, ns/packet", "two lines", "goal"} <= said
    assert {"IPv4", "IPv6", "fnat", "nat", "1", "1 k", "10 M"} <= said
    assert (tmp_path / "b.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(("draw", "x", "series", "goals"), DRAW)
def test_picture_is_deterministic(tmp_path, draw, x, series, goals):
    for name in ("a.svg", "b.svg"):
        draw(tmp_path / name, "title", rows(), x, series, ["family"], goals)
    text = (tmp_path / "a.svg").read_text()
    assert text == (tmp_path / "b.svg").read_text()
    assert all(line == line.rstrip() for line in text.splitlines()) and text.endswith("\n")


def test_panels_have_their_own_baselines():
    made = rows()
    for row in made:
        if row["params"]["family"] == "IPv6":
            row["baseline"]["name"] = "another"
    dashes = picture.dashed(made)
    assert set(dashes) == {"two lines", "another"} and dashes["two lines"] != dashes["another"]


def test_axis_has_parameter_and_unit(tmp_path):
    made = rows()
    for row in made:
        row["params"]["load"] = row["params"]["sessions"]
    picture.lines(tmp_path / "b.svg", "title", made, "load", ["mode"], ["family"])
    assert "load, % of the forwarder's PDR" in words(tmp_path / "b.svg")


@pytest.mark.parametrize("draw", [picture.lines, picture.bars])
def test_baseline_is_optional(tmp_path, draw):
    draw(tmp_path / "b.svg", "title", rows(baseline=False), "sessions", ["mode", "family"])
    assert {"fnat IPv4", "nat IPv6"} <= words(tmp_path / "b.svg")
    assert "two lines" not in words(tmp_path / "b.svg")
