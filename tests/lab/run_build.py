# SPDX-License-Identifier: Apache-2.0
"""Selects the build of `steelyard run` for the lab's programs.

With SY_BUILD=build/asan the supervisor is always sanitized. The library, which is loaded into
unsanitized programs, is sanitized only within sanitized_library()."""

import atexit
import contextlib
import functools
import re
import shutil
import tempfile
from pathlib import Path

from tests.lab.lab import SANITIZER_REPORT
from tests.lab.process import CommandFailed, run
from tests.lab.steelyard import BUILD, SANITIZED, STEELYARD

LIBRARY = "libsteelyard-preload.so"
WRAPPER = """\
#!/bin/sh
# steelyard-supervisor --library LIBRARY …
shift 2
export {env}
exec {supervisor} --library {library} "$@"
"""
_sanitized = False


def runtime_of(library):
    """Returns the sanitizer's runtime library, which has to be a process's first library."""
    return re.search(r"\S*/libasan\.so\S*", run(["ldd", library]))[0]


@functools.cache
def made(sanitized):
    """Makes a `steelyard` with supervisor and library beside it, where it looks for them."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = (STEELYARD.parent / LIBRARY).resolve()
    if sanitized:
        library = BUILD / "dataplane/preload" / LIBRARY
    # Leaks are not reported: those of programs and of the library look alike.
    env = {name: text.replace("leaks=1", "leaks=0") for name, text in SANITIZED.items()}
    wrapper = folder / "steelyard-supervisor"
    wrapper.write_text(
        WRAPPER.format(
            env=" ".join(f"{name}={text}" for name, text in env.items()),
            supervisor=BUILD / "dataplane/preload/steelyard-supervisor",
            library=f"{runtime_of(library)}:{library}" if sanitized else library,
        )
    )
    wrapper.chmod(0o755)
    (folder / LIBRARY).symlink_to(library)
    (folder / "hooks").symlink_to(STEELYARD.parent / "hooks")
    shutil.copy2(STEELYARD, folder)  # it looks beside the file, not beside a link
    return folder / STEELYARD.name


def steelyard_run():
    """Returns the `steelyard` whose `run` is to be used."""
    return made(_sanitized) if BUILD.name == "asan" else STEELYARD


@contextlib.contextmanager
def sanitized_library(wanted=True):
    """Programs that start within the block get the library of SY_BUILD."""
    global _sanitized  # noqa: PLW0603
    _sanitized = wanted
    try:
        yield
    finally:
        _sanitized = False


def check_reports(processes):
    """Fails if a sanitizer reported an error in one of these programs."""
    for process in processes:
        if SANITIZER_REPORT.search(process.output()):
            raise CommandFailed(process.describe())
