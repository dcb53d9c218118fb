# SPDX-License-Identifier: Apache-2.0
"""Runs a demo in a lab of its own, from the command line."""

import argparse
import time

from tests.demo.show import Failed, paint, say
from tests.lab import CommandFailed, Expired, Lab
from tests.lab.lab import catch_signals
from tests.lab.steelyard import STEELYARD


def perform(parts, title, about):
    """Returns the exit status: 0 if every claim of the demo was true.

    parts: a class, or several, each of which has a lab of its own. part(lab) has run(), stop(),
    look_around() for lines of its own, and steelyard; NETWORK, if present, has options of its lab.
    OPTIONS, if present, has numbers that the command line may change, {name: (default, help)}; the
    class gets its own ones. A demo that measures lists missed goals in `missed`."""
    parts = parts if isinstance(parts, tuple) else (parts,)
    options = argparse.ArgumentParser(prog="make demo", description=about)
    options.add_argument("--keep", action="store_true", help="leave the lab up")
    known = {}
    for part in parts:
        known |= getattr(part, "OPTIONS", {})
    for name, (number, text) in known.items():
        options.add_argument(f"--{name}", type=int, default=number, metavar="N", help=text)
    numbers = vars(options.parse_args())
    keep = numbers.pop("keep")
    catch_signals()
    began = time.monotonic()
    say(paint(f"Steelyard · {title}", "bold"))
    try:
        for part in parts:
            own = {name: numbers[name] for name in getattr(part, "OPTIONS", {})}
            with Lab(outlive=keep, **getattr(part, "NETWORK", {})) as lab:
                demo = part(lab, **own)
                run_in(lab, demo)
                if keep:
                    look_around(demo)
                else:
                    demo.stop()
    except (Failed, CommandFailed, Expired) as error:
        say(f"\n{paint('The demo failed:', 'red')} {error}")
        return 1
    except KeyboardInterrupt:
        say(f"\n{paint('Interrupted; nothing left behind.', 'red')}")
        return 130
    took = time.monotonic() - began
    if missed := getattr(demo, "missed", ()):
        say(f"\n{paint('Goals that were not met:', 'red')} ({took:.0f} s)")
        for text in missed:
            say(f"   {text}")
        return 1
    if not keep:
        say(f"\n{paint('All of it verified, and nothing left behind.', 'green')} ({took:.0f} s)")
    return 0


def run_in(lab, demo):
    try:
        demo.run()
    except (Failed, CommandFailed, Expired):
        for process in lab.processes:
            if "steelyard" in process.name:
                say(f"\n{process.describe()}")
        raise


def look_around(demo):
    lab, steelyard = demo.lab, demo.steelyard
    lines = demo.look_around() | {"on a server": f"{lab['s1'].ns.enter} tcpdump -ni eth0"}
    if steelyard:  # some demos have no forwarder
        tool = f"{STEELYARD} --socket {steelyard.agent_socket}"
        lines |= {
            "the balancer": f"{tool} get status",
            "what it does": f"{tool} stats -w 1s",
            "configuration": f"{steelyard.file}  (edit it and look at the agent's log)",
        }
    lines["logs"] = lab.dir
    say(f"\n{paint('Everything is still up. Look around:', 'bold')}\n")
    for what, line in lines.items():
        say(f"   {what:<17} {line}")
    say("\n   remove it all     make demo-clean")
