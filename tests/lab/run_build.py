# SPDX-License-Identifier: Apache-2.0
"""Which build of `steelyard run` the lab's programs get.

With SY_BUILD=build/asan the keeper is always the sanitized one; the library, which gets into
programs that know nothing of sanitizers, is that within sanitized_library().
"""

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
# steelyard-keeper --library LIBRARY …
shift 2
export {env}
exec {keeper} --library {library} "$@"
"""
_sanitized = False


def runtime_of(library):
    """The sanitizer's own library, which has to be a process's first one."""
    return re.search(r"\S*/libasan\.so\S*", run(["ldd", library]))[0]


@functools.cache
def made(sanitized):
    """A `steelyard` with a keeper and a library beside it, where it looks for them."""
    folder = Path(tempfile.mkdtemp(prefix="steelyard-run-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    library = (STEELYARD.parent / LIBRARY).resolve()
    if sanitized:
        library = BUILD / "dataplane/preload" / LIBRARY
    # Programs may leak: theirs and the library's leaks look alike.
    env = {name: text.replace("leaks=1", "leaks=0") for name, text in SANITIZED.items()}
    wrapper = folder / "steelyard-keeper"
    wrapper.write_text(
        WRAPPER.format(
            env=" ".join(f"{name}={text}" for name, text in env.items()),
            keeper=BUILD / "dataplane/preload/steelyard-keeper",
            library=f"{runtime_of(library)}:{library}" if sanitized else library,
        )
    )
    wrapper.chmod(0o755)
    (folder / LIBRARY).symlink_to(library)
    (folder / "hooks").symlink_to(STEELYARD.parent / "hooks")
    shutil.copy2(STEELYARD, folder)  # it looks beside the file, not beside a link
    return folder / STEELYARD.name


def steelyard_run():
    """The `steelyard` whose `run` is to be used."""
    return made(_sanitized) if BUILD.name == "asan" else STEELYARD


@contextlib.contextmanager
def sanitized_library(wanted=True):
    """Programs that begin meanwhile have the library of SY_BUILD."""
    global _sanitized  # noqa: PLW0603
    _sanitized = wanted
    try:
        yield
    finally:
        _sanitized = False


def check_reports(processes):
    """Fails if a sanitizer reported something in one of these programs."""
    for process in processes:
        if SANITIZER_REPORT.search(process.output()):
            raise CommandFailed(process.describe())
