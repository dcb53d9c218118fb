# SPDX-License-Identifier: Apache-2.0
"""The output of a demo: steps, checked claims, commands with their output, small tables."""

import os
import sys

COLOURS = {"bold": 1, "dim": 2, "red": 31, "green": 32, "cyan": 36}
BAR = 30


class Failed(Exception):
    """A claim of the demo is false."""


def paint(text, colour):
    if not sys.stdout.isatty() or os.environ.get("NO_COLOR"):
        return text
    return f"\033[{COLOURS[colour]}m{text}\033[0m"


def say(text=""):
    print(text, flush=True)


class Show:
    def __init__(self):
        self.steps = 0

    def step(self, text):
        self.steps += 1
        say(f"\n{paint(f'{self.steps}. {text}', 'bold')}")

    def claim(self, true, text):
        """Prints a claim that is true, or ends the demo."""
        if not true:
            say(f"   {paint('✗', 'red')} {text}")
            raise Failed(text)
        say(f"   {paint('✓', 'green')} {text}")

    def command(self, line, output):
        """Prints a command as a user would type it, and its output."""
        say(f"   {paint('$ ' + line, 'cyan')}")
        for row in output.rstrip("\n").split("\n"):
            say(f"     {row}")

    def table(self, head, rows):
        """Prints rows of words; the first column left-aligned, the others right-aligned."""
        widths = [max(len(row[n]) for row in [head, *rows]) for n in range(len(head))]
        for row in [head, *rows]:
            first, *others = zip(row, widths, strict=True)
            line = f"{first[0]:<{first[1]}}" + "".join(f"  {text:>{w}}" for text, w in others)
            say(f"     {paint(line, 'dim') if row is head else line}")

    def verdict(self, head, rows, missed):
        """Prints a table and the missed goals. Returns the exit status."""
        self.table(head, rows)
        for text in missed:
            say(f"   {paint('✗', 'red')} {text}")
        return 1 if missed else 0

    def served(self, counts, unit="requests"):
        """Prints how many requests each server answered."""
        total = sum(counts.values()) or 1
        say(f"     {paint(f'server   {unit:>9}   share', 'dim')}")
        for name, count in sorted(counts.items()):
            share = count / total
            bar = paint("█" * round(share * BAR), "cyan")
            say(f"     {name:<8} {count:>9} {share:>6.0%}   {bar}")

    def stop(self, steelyard):
        """The last step of each demo: agent and forwarder end."""
        self.step("All of it stops")
        self.claim(steelyard.agent.stop() == 0, "the agent ended cleanly")
        self.claim(steelyard.forwarder.stop() == 0, "the forwarder ended cleanly")
