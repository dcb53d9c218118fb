# SPDX-License-Identifier: Apache-2.0
"""Runs cells of some programs by hand, on the stack or on Linux's TCP:

python -m tests.programs [--linux] PROGRAM,... [COLUMN ...]
"""

import sys
import time
import traceback

from tests.lab.lab import Lab
from tests.lab.servers import start_nginx
from tests.programs.program import Running
from tests.programs.table import PROGRAMS, make_certificate

PATIENCE_S = 15


def attempt(place, what, run):
    """Returns whether it works; prints why not."""
    begun = time.monotonic()
    try:
        run()
    except Exception:
        output = place.process.output() if place.process else ""
        print(f"{place.program.name}, {what}: NO", traceback.format_exc(limit=-2), output[-1000:])
        return False
    print(f"{place.program.name}, {what}: yes, {time.monotonic() - begun:.1f} s", flush=True)
    return True


def main(words):
    linux = "--linux" in words
    names, *columns = [word for word in words if not word.startswith("--")]
    good = True
    with Lab(arms=1, servers=0, queues=4) as lab:
        lab.dir.chmod(0o755)
        start_nginx(lab, "client")
        for program in [one for one in PROGRAMS if one.id in names.split(",")]:
            place = Running(lab, program, make_certificate(lab.dir), not linux)
            place.patience_s = PATIENCE_S
            started = attempt(place, "start", place.start)
            good &= started
            for column, check in program.cells.items() if started else ():
                if not columns or column in columns:
                    good &= attempt(place, column, lambda check=check, on=place: check(on))
            place.close()
    sys.exit(not good)


main(sys.argv[1:])
