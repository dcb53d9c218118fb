# SPDX-License-Identifier: Apache-2.0
"""The machine that is measured: its cores, its huge pages, and programs that run on it."""

import contextlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = ROOT / "build/dev/bench"
POOLS = Path("/sys/kernel/mm/hugepages")
MB, GB = 1 << 20, 1 << 30
FOLDER = "steelyard-bench-"  # and the process's id


def cpus():
    """The cores that we may use, in order."""
    return sorted(os.sched_getaffinity(0))


def meminfo(name):
    """A line of /proc/meminfo, in bytes."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith(name + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(name)


def describe():
    """What a reader of figures wants to know of the machine."""
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


# ---- huge pages -----------------------------------------------------------------------------


@dataclass
class Pages:
    """Huge pages for a benchmark. Size 0: there are none, and ordinary memory must do."""

    size: int
    directory: str | None  # of our own, on a hugetlbfs of such pages

    def options(self):
        """As the programs take them."""
        return ["--directory", self.directory] if self.directory else []


class Pool:
    """The kernel's pages of one size."""

    def __init__(self, size):
        self.folder = POOLS / f"hugepages-{size >> 10}kB"

    def read(self, name):
        try:
            return int((self.folder / name).read_text())
        except FileNotFoundError:
            return 0

    def free(self):
        return self.read("free_hugepages") - self.read("resv_hugepages")

    def add(self, count):
        """Asks for more, or fewer; says how many came."""
        before = self.read("nr_hugepages")
        (self.folder / "nr_hugepages").write_text(str(max(0, before + count)))
        return self.read("nr_hugepages") - before


def mounted(size):
    """Where a hugetlbfs of such pages is mounted already."""
    wanted = f"pagesize={size >> 20}M"
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        if kind == "hugetlbfs" and wanted in options.split(","):
            return where
    return None


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    return True


def reap(where):
    """Removes the folders of those who were killed: their files hold pages."""
    for folder in Path(where).glob(FOLDER + "*"):
        if not alive(int(folder.name.removeprefix(FOLDER).partition("-")[0])):
            shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def folder_of(size):
    """A folder of our own on a hugetlbfs, which is mounted if there is none."""
    with contextlib.ExitStack() as stack:
        where = mounted(size)
        if not where:
            where = stack.enter_context(tempfile.TemporaryDirectory(prefix="steelyard-huge-"))
            mount = ["mount", "-t", "hugetlbfs", "-o", f"pagesize={size}", "none", where]
            subprocess.run(mount, check=True)
            stack.callback(subprocess.run, ["umount", where], check=True)
        reap(where)
        prefix = f"{FOLDER}{os.getpid()}-"
        yield stack.enter_context(tempfile.TemporaryDirectory(prefix=prefix, dir=where))


@contextlib.contextmanager
def huge_pages(wanted, largest=GB):
    """So many bytes of free huge pages, of 1 GB where the machine has them (and `largest` allows),
    else of 2 MB, whose number is raised and put back. Without enough memory: Pages(0, None)."""
    if largest >= GB and Pool(GB).free() * GB >= wanted:
        with folder_of(GB) as where:
            yield Pages(GB, where)
        return
    pool, size = Pool(2 * MB), 2 * MB
    missing = max(0, -(-wanted // size) - pool.free())
    got = 0
    try:
        # A page that is not there is looked for by moving others; what is used up by files that
        # could be read again may not be in the way.
        if missing and meminfo("MemAvailable") > missing * size + 256 * MB:
            got = pool.add(missing)
        if got < missing:
            print(f"   on ordinary pages, as {wanted >> 20:,} MB of huge ones are not to be had")
            yield Pages(0, None)
            return
        with folder_of(size) as where:
            yield Pages(size, where)
    finally:
        if got:
            pool.add(-got)


def memory_suffices(wanted):
    """May so many bytes be taken, in huge pages or not, with a margin for everybody else?"""
    return meminfo("MemAvailable") + Pool(2 * MB).free() * 2 * MB > wanted + GB


def lacking(wanted):
    """Why there is no measuring: memory_suffices() said no."""
    return f"{(wanted + GB) >> 20:,} MB of memory are not free"


# ---- programs -------------------------------------------------------------------------------


FIRST = ["nice", "-n", "-20"] if os.geteuid() == 0 else []  # before who else wants the cores


def first(command):
    """The command, before others and no longer than we live; for a session of its own."""
    return ["setpriv", "--pdeathsig", "KILL", "--", *FIRST, *map(str, command)]


def prefer(pid):
    """Where sessions share the cores as groups, a group's own niceness counts."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-20")


class Failed(Exception):
    """A benchmark's program failed; what it said is the message."""


def run_program(name, *options, cpus=None):
    """Runs a program of build/dev/bench, on these cores; yields its lines of JSON as they come.
    It is killed when the caller is, or wants no more. Raises Failed with its standard error."""
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
