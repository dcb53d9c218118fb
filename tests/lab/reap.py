# SPDX-License-Identifier: Apache-2.0
"""Removes what labs, benchmarks and tests left behind when their process died without cleaning up.

`make demo-clean` calls main(), which also removes labs that keep running on purpose; `make test`
starts by removing labs whose process is dead, and leftovers of tests."""

import contextlib
import fcntl
import json
import os
import shutil
import subprocess
from pathlib import Path

from tests.lab import pages
from tests.lab.netns import Namespace, delete_all

LABS = Path("/run/steelyard-lab")
NETNS = Path("/run/netns")
SCRATCH = Path(__file__).resolve().parents[2] / "build/tmp"


def _started(pid):
    """Returns the start time of a process in ticks, which distinguishes it from a later one with
    the same id."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]
    except OSError:
        return None


def claim(folder, outlive):
    """Makes a lab's folder, together with its owner: a lab that starts at the same time would
    remove a folder without owner."""
    owner = {"pid": os.getpid(), "started": _started(os.getpid()), "outlive": outlive}
    unseen = folder.with_name(f".{folder.name}")
    unseen.mkdir(parents=True, mode=0o755)
    (unseen / "owner").write_text(json.dumps(owner))
    unseen.rename(folder)


def drop(folder):
    """Removes a lab's folder in one step: without its owner, the lab would look dead."""
    unseen = folder.with_name(f".{folder.name}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(unseen)
    shutil.rmtree(unseen, ignore_errors=True)


def _owner(folder):
    try:
        return json.loads((folder / "owner").read_text())
    except (OSError, ValueError):
        return {"pid": 0, "started": None, "outlive": False}


def remove_shared_files(lab_id):
    """Removes files outside the lab's folder that are named after the forwarder's instance."""
    huge = [where for where, _ in pages.mounts()]
    for folder in (Path("/run/dpdk"), Path("/dev/shm"), *huge):
        for path in folder.glob(f"*{lab_id}*"):
            if path.is_dir():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def cleanup(ns, argv):
    """Runs `argv` (--cleanup) in the namespace: the forwarder removes its own state."""
    ns.kill_all()
    ns.run(argv, check=False)


def note_cleanup(folder, host, argv):
    """Records the command for cleanup(), for use when the lab's process is dead."""
    (folder / f"cleanup-{host}.json").write_text(json.dumps([str(word) for word in argv]))


def clean_hosts(lab_id):
    """Runs a lab's cleanup commands in those of its namespaces that still exist."""
    for file in (LABS / lab_id).glob("cleanup-*.json"):
        ns = Namespace(f"{lab_id}-{file.stem.removeprefix('cleanup-')}")
        argv = json.loads(file.read_text())
        # The forwarder may have been built elsewhere in the meantime.
        if ns.path.exists() and Path(argv[0]).exists():
            cleanup(ns, argv)


def remove(lab_id):
    clean_hosts(lab_id)
    if namespaces := [Namespace(path.name) for path in NETNS.glob(f"{lab_id}-*")]:
        delete_all(namespaces)
    remove_shared_files(lab_id)
    for where, _ in pages.mounts():
        if where.is_relative_to(LABS / lab_id):
            subprocess.run(["umount", where], check=False)
    pages.put_back(LABS / lab_id)
    drop(LABS / lab_id)


def reap_tests():
    """Removes the folders of C tests that have ended (tests/folder.h)."""
    for where in ("/tmp", "/dev/shm", SCRATCH):
        for folder in Path(where).glob("steelyard-test-*-*"):
            if not Path("/proc", folder.name.split("-")[2]).exists():
                shutil.rmtree(folder, ignore_errors=True)


def is_dead(folder, kept_too=False):
    owner = _owner(folder)
    alive = owner["started"] is not None and _started(owner["pid"]) == owner["started"]
    return not alive and (kept_too or not owner["outlive"])


@contextlib.contextmanager
def _alone():
    """Excludes other processes: each would remove what another is removing."""
    LABS.mkdir(parents=True, exist_ok=True)
    with open(LABS / "reaping", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def reap_dead(kept_too=False):
    """Removes labs whose process is dead; those that keep running on purpose only with kept_too."""
    if not LABS.is_dir() or not any(is_dead(one, kept_too) for one in LABS.glob("sy-*")):
        return []
    removed = []
    with _alone():
        for folder in sorted(LABS.glob("sy-*")):
            if folder.is_dir() and is_dead(folder, kept_too):
                remove(folder.name)
                removed.append(folder.name)
    return removed


def main():
    removed = reap_dead(kept_too=True)
    print("removed " + " ".join(removed) if removed else "no lab to remove")
