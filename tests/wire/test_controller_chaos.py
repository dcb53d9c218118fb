# SPDX-License-Identifier: Apache-2.0
"""Random faults of three controllers whose own etcds form a cluster: no request fails, and no
change is lost or undone.

Controllers are killed, frozen and cut off, agents are killed, hosts replaced, and clocks set by
seconds or months, while wrk loads the forwarder and changes continue. STEELYARD_CHAOS=200 injects
that many faults instead of each kind once; STEELYARD_CHAOS_SEED chooses others."""

import os
import random
import signal
import threading

import pytest

from tests.lab import wait_until
from tests.lab.clients import finish_wrk, start_wrk
from tests.lab.clocks import DAY, HOUR, MINUTE
from tests.lab.long_form import by_form, has_long_form
from tests.lab.steelyard import VIP, WEB
from tests.wire.joined import Joined

pytestmark = pytest.mark.workers(1)  # none of it is a worker's
KINDS = ("kill", "freeze", "cut", "agent", "host", "clock")
# seconds by which a clock may be off while others still trust it
CLOCKS = (MINUTE, HOUR, DAY, 8 * DAY)
LOST = 40 * DAY  # longer than a certificate's lifetime
FAULTS = int(os.environ.get("STEELYARD_CHAOS", by_form(len(KINDS), 200)))
SEED = int(os.environ.get("STEELYARD_CHAOS_SEED", "16"))


class Trio(Joined):
    """Three controllers, the agent that has joined them, and their faults so far."""

    def __init__(self, stage):
        super().__init__(stage, count=3, clocked=True)
        self.history = []
        self.seen = [0]  # weights that the forwarder had, without repetitions
        self.ending = threading.Event()
        self.watcher = threading.Thread(target=self.watch)

    def watch(self):
        """Records, until closed, the weights that the forwarder has."""
        while not self.ending.wait(0.1):
            for weight in self.weights():  # all servers have the same one
                if weight != self.seen[-1]:
                    self.seen.append(weight)

    def close(self):
        self.ending.set()
        if self.watcher.ident:
            self.watcher.join()
        super().close()

    def replace_host_while_cut_off(self, name):
        """Replaces the host while the first controller that the new agent contacts does not
        answer."""
        self.controllers.cut(name)
        self.steelyard.agent.kill()
        self.enlist()
        self.controllers.heal()

    def set_clock(self, chance):
        """Sets one clock at random: by an amount that others tolerate, or a controller's by so much
        that others reject it."""
        name = chance.choice([*self.controllers.names, "f1"])
        if name != "f1" and chance.random() < 0.4:
            self.controllers.heal()  # two of three remain
            self.controllers.revive()
            self.controllers.lose_clock(name, chance.choice((-LOST, LOST)))
        else:
            most = chance.choice(CLOCKS)
            self.controllers.clocks.set(name, chance.uniform(-most, most))
        self.history.append(f"clock {name} {self.controllers.clocks.offset(name):+.0f} s")

    def inject(self, kind, chance):
        if kind == "clock":
            self.set_clock(chance)
            return
        name = chance.choice(self.controllers.names)
        if kind in ("agent", "host"):
            self.history.append(kind)
            self.steelyard.agent.kill()
            if kind == "host":
                self.enlist()
            else:
                self.start_agent()
            return
        self.history.append(f"{kind} {name}")
        self.controllers.heal()  # two of three remain
        self.controllers.revive()
        getattr(self.controllers, kind)(name)


@pytest.fixture
def trio(stage):
    one = Trio(stage)
    try:
        one.start()
        yield one
    finally:
        print(f"seed {SEED}: {'; '.join(one.history)}")
        one.close()


@has_long_form
def test_no_fault_costs_a_request_or_a_change(stage, trio):
    #   wrk ── forwarder ── s1, s2, …
    #              │                      ┌ c1 ┐
    #       agent ─┘ killed, replaced ◄───┼ c2 ┼ killed, frozen, cut off
    #                                     └ c3 ┘   all: with a clock that is set
    chance = random.Random(SEED)
    kinds = chance.sample(KINDS, len(KINDS)) + chance.choices(KINDS, k=FAULTS)
    trio.change(1, "c1")
    trio.watcher.start()
    stage.steelyard.wait_all_up()
    url, length_s = f"http://{VIP[4]}:{WEB}/", 300 + 60 * FAULTS
    load = start_wrk(stage.lab, url, 0, connections=4, seconds=length_s, pause_ms=5)
    trio.replace_host_while_cut_off("c1")
    for weight, kind in enumerate(kinds[:FAULTS], 2):
        trio.inject(kind, chance)
        trio.change(weight, chance.choice(trio.controllers.awake()))
    trio.controllers.heal()
    trio.controllers.revive()
    trio.await_in_force("what is desired is in force", 120)
    assert trio.weights() == {1 + FAULTS}
    wait_until(lambda: trio.seen[-1] == 1 + FAULTS, "the last change is seen")
    assert trio.seen == sorted(trio.seen), "a change went back"
    load.send(signal.SIGINT)
    result = finish_wrk(load)
    assert result.requests > 0 and not result.failed, result
