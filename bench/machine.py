# SPDX-License-Identifier: Apache-2.0
"""The machine under test: its cores, its huge pages, and the programs that run on it."""

import contextlib
import itertools
import json
import os
import platform
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

from tests.lab import pages, reap

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build/dev/bench"
MB, GB = 1 << 20, 1 << 30


def cpus():
    """The cores that this process may use, in order."""
    return sorted(os.sched_getaffinity(0))


def meminfo(name):
    """A line of /proc/meminfo, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def describe():
    """A description of the machine for readers of the figures."""
    model = platform.machine()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
            break
    return {
        "processor": model,
        "cores": len(cpus()),
        "memory_gb": round(meminfo("MemTotal") / GB),
        "kernel": platform.release().partition("-")[0],
    }


# ---- huge pages ----------------------------------------------------------------------------------


@dataclass
class Pages:
    """Huge pages for a benchmark. Size 0: none, only ordinary memory."""

    size: int
    directory: str | None  # a private one on a hugetlbfs of such pages

    def options(self):
        """In the form of the programs' options."""
        return ["--directory", self.directory] if self.directory else []


_count = itertools.count()


@contextlib.contextmanager
def folder(name):
    """A lab's folder and its name. Notes in it say what must be undone: at the end, or by the
    next lab or benchmark if this process is killed."""
    lab = f"sy-{os.getpid()}-{name}{next(_count)}"
    place = reap.LABS / lab
    reap.claim(place, False)
    try:
        yield place
    finally:
        reap.remove(lab)


def mounted(place, size):
    """The mount point of a hugetlbfs with such pages; mounts one here if there is none."""
    for where, pagesize in pages.mounts():
        if pagesize == size:
            return where
    where = place / "huge"
    where.mkdir()
    mount = ["mount", "-t", "hugetlbfs", "-o", f"pagesize={size}", "none", where]
    subprocess.run(mount, check=True)
    return where


def taken(place, size):
    """Pages, with a folder of the place's name on their file system."""
    where = mounted(place, size) / place.name
    where.mkdir()
    return Pages(size, str(where))


@contextlib.contextmanager
def huge_pages(wanted, largest=GB):
    """This many bytes of free huge pages, of 1 GB where the machine has them (and `largest`
    allows), else of 2 MB, whose number is raised and later restored. Without enough memory:
    Pages(0, None)."""
    reap.reap_dead()
    with folder("pages") as place:
        if largest >= GB and pages.Pool(GB).free() * GB >= wanted:
            yield taken(place, GB)
            return
        size = 2 * MB
        missing = max(0, -(-wanted // size) - pages.Pool(size).free())
        got = 0
        # The kernel makes huge pages by moving other pages; the page cache must not be in the way.
        if missing and meminfo("MemAvailable") > missing * size + 256 * MB:
            got = pages.raise_by(place, size, missing)
        if got < missing:
            pages.put_back(place)  # the few that came: ordinary memory is used instead
            print(f"   on ordinary pages, as {wanted >> 20:,} MB of huge ones are not to be had")
            yield Pages(0, None)
            return
        yield taken(place, size)


def with_margin(wanted):
    """Bytes that must be free, with a margin for all other programs."""
    return wanted + wanted // 16 + GB


def memory_suffices(wanted):
    """Whether this many bytes can be taken, in huge pages or not."""
    free = meminfo("MemAvailable") + pages.Pool(2 * MB).free() * 2 * MB
    return free > with_margin(wanted)


def lacking(wanted):
    """The reason for not measuring: memory_suffices() returned false."""
    return f"{with_margin(wanted) >> 20:,} MB of memory are not free"


# ---- programs ------------------------------------------------------------------------------------


preferring = True  # a smoke run shares the machine with tests, and must not starve them


def ahead(command):
    """The command, ahead of other programs on its cores."""
    first = ["nice", "-n", "-20"] if preferring and os.geteuid() == 0 else []
    return [*first, *map(str, command)]


def first(command):
    """The command, with priority and killed with this process; for a session of its own."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *ahead(command)]


def prefer(pid):
    """Where the scheduler groups sessions, the group's own niceness counts."""
    if not preferring:
        return
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-20")


class Failed(Exception):
    """A benchmark's program failed; the message is its output."""


def run_program(name, *options, cpus=None):
    """Runs a program of build/dev/bench on these cores; yields its lines of JSON as they come.
    It is killed with the caller, or when the caller stops reading. Raises Failed with its
    standard error."""
    command = [PROGRAMS / name, *options]
    if cpus is not None:
        command = ["taskset", "-c", ",".join(map(str, cpus)), *command]
    command = first(command)
    with tempfile.TemporaryFile("w+") as said:
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=said,
            text=True,
            start_new_session=True,
        )
        try:
            prefer(process.pid)
            for line in process.stdout:
                try:
                    yield json.loads(line)
                except ValueError:
                    raise Failed(f"{' '.join(command)}: not a line of JSON: {line!r}") from None
            status = process.wait()
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        if status != 0:
            said.seek(0)
            raise Failed(f"{' '.join(command)}: exit status {status}\n{said.read()[-4000:]}")
