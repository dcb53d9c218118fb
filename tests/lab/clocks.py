# SPDX-License-Identifier: Apache-2.0
"""Individual clocks for programs, which a test sets while they run; the machine's clock is
unchanged.

Go reads the clock without the C library, so preloading has no effect. Instead, `steelyard` is built
with one more file (go build -overlay) that replaces time.Now: the wall clock is the host's plus an
offset, which the program reads from a page shared with the test. The monotonic clock is the host's,
as when an administrator sets a real clock."""

import ctypes
import fcntl
import filecmp
import functools
import json
import mmap
import shutil

from tests.lab.lab import ROOT
from tests.lab.process import run

PLACE = ROOT / "build/clock"
ADDED = ROOT / "tests/lab/clock/clock.go"
MINUTE, HOUR, DAY = 60, 3600, 86400


@functools.cache
def steelyard():
    """Builds `steelyard` with adjustable clocks; returns its path."""
    PLACE.mkdir(parents=True, exist_ok=True)
    overlay = PLACE / "overlay.json"
    made, new, copy = PLACE / "steelyard", PLACE / "steelyard.new", PLACE / "steelyard.copy"
    # The file uses private functions of package time: hence the linker's flag.
    words = ["go", "build", "-C", ROOT, "-overlay", overlay, "-tags", "steelyard_clock"]
    words += ["-ldflags=-checklinkname=0", "-o", new, "./cmd/steelyard"]
    env = {"CGO_ENABLED": "0", "GOTOOLCHAIN": "local"}
    with open(PLACE / "lock", "w") as lock:  # other tests' processes build the same
        fcntl.flock(lock, fcntl.LOCK_EX)
        replaced = {str(ROOT / "cmd/steelyard/clock.go"): str(ADDED)}
        overlay.write_text(json.dumps({"Replace": replaced}))
        run(words, deadline_s=1800, env=env)  # quick if the file is right
        if not made.exists() or not filecmp.cmp(new, made, shallow=False):
            shutil.copy2(new, copy)
            copy.replace(made)  # other users may execute it
    return made


class Clocks:
    """Offsets to the host's clock, in seconds, by name; 0 by default."""

    def __init__(self, directory):
        self.dir, self.pages = directory, {}

    def env(self, name):
        """Returns the environment that selects this clock."""
        self.page(name)
        return {"STEELYARD_CLOCK": str(self.file(name))}

    def file(self, name):
        return self.dir / f"clock-{name}"

    def page(self, name):
        if name not in self.pages:
            self.file(name).write_bytes(bytes(8))
            with open(self.file(name), "r+b") as file:
                self.pages[name] = mmap.mmap(file.fileno(), 8)
        return self.pages[name]

    def set(self, name, offset_s):
        """Sets a clock, in one step."""
        ctypes.c_int64.from_buffer(self.page(name)).value = int(offset_s * 1e9)

    def offset(self, name):
        return ctypes.c_int64.from_buffer(self.page(name)).value / 1e9
