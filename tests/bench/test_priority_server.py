# SPDX-License-Identifier: Apache-2.0
"""The synthetic server under each schedule answers and counts every request."""

import pytest

from bench import machine
from bench.priority import figures
from bench.priority.priority_bed import PriorityBed, lost

REQUESTS = 300
SETTINGS = {
    "none": figures.NONE,
    "noted": figures.NOTED,
    "LNS": figures.LABEL,
    "DARC": figures.DARC,
    "driver": figures.DRIVER,
    "requests": figures.REQUEST,
    "both": figures.BOTH,
    "swapped": figures.BOTH | {"rule": "swapped"},
    "aside": figures.BOTH | {"aside": 1},
    "none again": figures.NONE,
}


@pytest.fixture(scope="module")
def bed():
    before, machine.preferring = machine.preferring, False
    with PriorityBed(aside=True) as made:
        yield made
    machine.preferring = before


@pytest.mark.parametrize("name", SETTINGS)
@pytest.mark.parametrize("length", (64, 4096))
def test_every_request_is_answered_and_counted(bed, name, length):
    setting = SETTINGS[name]
    asked = {"connections": 8, "requests": REQUESTS, "timeout": "60s", "reset": True}
    seen = bed.ask(setting, **asked, **{"class": figures.classes(1, 1, 50, length)})
    assert seen["answered"] == REQUESTS
    assert lost(seen) == 0
    server = seen["server"]
    assert server["accepted"] == 8
    assert server["bad"] == 0
    urgent, other = server["classes"][:2]
    assert urgent["requests"] + other["requests"] == REQUESTS
    assert [urgent["requests"], other["requests"]] == [one["answers"] for one in seen["classes"]]
    noted = REQUESTS if setting["transport"] else 0
    assert sum(one["before_tcp_us"]["count"] for one in (urgent, other)) == noted


@pytest.mark.parametrize("line", ("use schedule=other", "use rule=other", "use fetch=0", "what"))
def test_invalid_orders_are_refused(bed, line):
    with pytest.raises(machine.Failed, match="error"):
        bed.order(line)


def test_long_requests_run_on_their_own_thread(bed):
    """Later urgent requests have their answers while the long one still runs."""
    asked = {"connections": 8, "requests": 40, "timeout": "60s", "reset": True}
    classes = figures.classes(1, 300_000, 95)
    seen = bed.ask(figures.DRIVER | {"aside": 1}, **asked, **{"class": classes})
    assert lost(seen) == 0
    urgent, other = seen["classes"]
    assert urgent["answers"] > 30
    assert urgent["latency_us"]["p50"] < 300_000 <= other["latency_us"]["p50"]
