# SPDX-License-Identifier: Apache-2.0
"""Runs parts of suites in parallel lanes, and prints each suite's result."""

import dataclasses
import json
import threading
import time
import traceback

from checks.base import RESULTS, Count, used


@dataclasses.dataclass
class Suite:
    """A suite and its progress."""

    name: str
    title: str
    parts: int
    count: Count = dataclasses.field(default_factory=Count)
    begun: float | None = None
    processor_s: float = 0
    done: int = 0

    def report(self):
        count = self.count
        for note in count.notes:
            print("   " + note.replace("\n", "\n   "))
        mark = "✗" if count.failed else "✓"
        skipped = f", {count.skipped} skipped" if count.skipped else ""
        took = f"{time.monotonic() - self.begun:.1f} s, {self.processor_s:.1f} s of processor"
        print(
            f"{mark}  {self.name}: {count.passed} passed, {count.failed} failed{skipped} ({took})",
            flush=True,
        )
        result = {"passed": count.passed, "failed": count.failed}
        if count.failed:
            result["notes"] = count.notes
        (RESULTS / f"{self.name}.json").write_text(json.dumps(result) + "\n")


class Schedule:
    """Lanes: threads that run the next part which may start, until none is left."""

    def __init__(self, checks, queue, apart=()):
        names = dict.fromkeys(name for name, _ in queue)
        self.suites = {
            name: Suite(name, checks[name][0], sum(1 for n, _ in queue if n == name))
            for name in names
        }
        self.checks, self.queue, self.apart = checks, list(queue), apart
        self.running = []
        self.changed = threading.Condition()

    def may_begin(self, name):
        return not any(name in pair and pair & set(self.running) - {name} for pair in self.apart)

    def next(self):
        """Waits for the next part that may start, and returns it; None if nothing is left."""
        with self.changed:
            while self.queue:
                for part in self.queue:
                    if self.may_begin(part[0]):
                        self.queue.remove(part)
                        self.running.append(part[0])
                        return part
                self.changed.wait()
        return None

    def end(self, name, count):
        with self.changed:
            self.running.remove(name)
            suite = self.suites[name]
            suite.count += count
            suite.processor_s += used.processor_s
            suite.done += 1
            if suite.done == suite.parts:
                suite.report()
            self.changed.notify_all()

    def lane(self):
        while part := self.next():
            name, number = part
            used.processor_s = 0
            with self.changed:
                if self.suites[name].begun is None:
                    self.suites[name].begun = time.monotonic()
                    print(f"…  {name} begins: {self.suites[name].title}", flush=True)
            try:
                count = self.checks[name][1][number]()
            except Exception:
                count = Count(failed=1, notes=[traceback.format_exc()])
            self.end(name, count)

    def run(self, lanes):
        threads = [threading.Thread(target=self.lane, daemon=True) for _ in range(lanes)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


SLOWEST = 15  # number of tests named at the end


def print_slowest(suites):
    cases = [(s, suite.name, case) for suite in suites for s, case in suite.count.cases]
    print(f"slowest tests of {len(cases)}:")
    for seconds, suite, case in sorted(cases, reverse=True)[:SLOWEST]:
        print(f"   {seconds:6.1f} s  {suite}: {case}")
