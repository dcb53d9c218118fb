# SPDX-License-Identifier: Apache-2.0
"""Adds huge pages to the kernel's pool temporarily; a note records them and outlives the process.
Also decides which labs of a process may use the existing ones."""

import json
import os
from pathlib import Path

POOLS = Path("/sys/kernel/mm/hugepages")
NOTE = "pages.json"


class Pool:
    """The kernel's pages of one size, in bytes."""

    def __init__(self, size):
        self.folder = POOLS / f"hugepages-{size >> 10}kB"

    def read(self, name):
        try:
            return int((self.folder / name).read_text())
        except FileNotFoundError:
            return 0

    def free(self):
        return self.read("free_hugepages") - self.read("resv_hugepages")

    def number(self):
        return self.read("nr_hugepages")

    def resize(self, number):
        """Requests this total; the kernel may allocate fewer."""
        (self.folder / "nr_hugepages").write_text(str(max(0, number)))


def raise_by(folder, size, count):
    """Requests further pages; returns how many were added. put_back() on the same folder removes
    them."""
    pool = Pool(size)
    before = pool.number()
    # A process killed during the allocation has added some of them already.
    note(folder, size=size, count=count, before=before)
    pool.resize(before + count)
    came = pool.number() - before
    note(folder, size=size, count=came, before=0)
    return came


def note(folder, **words):
    new = folder / f"{NOTE}.new"
    new.write_text(json.dumps(words))
    new.rename(folder / NOTE)


def put_back(folder):
    """Removes the pages that a note in this folder records, once, whichever process calls."""
    try:
        words = json.loads((folder / NOTE).read_text())
        (folder / NOTE).unlink()
    except FileNotFoundError:
        return
    pool = Pool(words["size"])
    now = pool.number()
    least = max(words["before"], now - words["count"])
    if least < now:
        pool.resize(least)


def mounts():
    """Returns mount points of hugetlbfs, with their page sizes in bytes."""
    units = {"k": 10, "M": 20, "G": 30}
    found = []
    for line in Path("/proc/mounts").read_text().splitlines():
        _, where, kind, options, *_ = line.split()
        for option in options.split(",") if kind == "hugetlbfs" else ():
            name, _, value = option.partition("=")
            if name == "pagesize":
                found.append((Path(where), int(value[:-1]) << units[value[-1]]))
    return found


# Pages of 2 MB that this process may use, if several share the machine (scripts/check).
BUDGET = "SY_LANE_PAGES"
_granted = {}


def grant(owner, count):
    """Returns whether `owner` may use so many pages of 2 MB until release(); the same answer each
    time. Without it, two processes could both count on the last free ones."""
    if owner not in _granted:
        free = Pool(2 << 20).free()
        budget = int(os.environ.get(BUDGET, free)) - sum(_granted.values())
        _granted[owner] = count if count <= min(free, budget) else 0
    return _granted[owner] > 0


def release(owner):
    _granted.pop(owner, None)
