# SPDX-License-Identifier: Apache-2.0
"""Instructions that a packet of an established session takes in the pipeline's stages.

    python -m bench.instructions [--build FOLDER] [MODE …]

Counted by valgrind, so neither other programs nor the place of code in memory change the result:
two builds compare exactly, where times differ by some percent. It says nothing about cache misses.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import machine

STAGES = ("classify", "lookup", "fast", "slow", "event", "transmit")
MODES = ("fnat", "nat", "dr", "ipip", "snat")
FEW, MANY = 12_800, 64_000  # packets of a run; the difference has no start and no end
PASSES = 2  # of the pipeline over these packets: one to warm up, one run


def executed(program, mode, family, packets):
    """Returns the instructions of all stages in a run of the program."""
    with tempfile.NamedTemporaryFile() as counts:
        subprocess.run(
            ["valgrind", "--tool=callgrind", f"--callgrind-out-file={counts.name}"]
            + [f"--toggle-collect=sy_{stage}_stage" for stage in STAGES]
            + [program, "--mode", mode, "--family", family]
            + ["--runs", "1", "--packets", str(packets)],
            check=True,
            capture_output=True,
        )
        return int(re.search(r"^(?:summary|totals): (\d+)", Path(counts.name).read_text(), re.M)[1])


def per_packet(build, mode, family):
    program = build / "bench/steelyard-fastpath"
    few, many = (executed(program, mode, family, packets) for packets in (FEW, MANY))
    return (many - few) / (MANY - FEW) / PASSES


def main(arguments=None):
    options = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    options.formatter_class = argparse.RawDescriptionHelpFormatter
    options.add_argument("--build", type=Path, default=machine.ROOT / "build/dev")
    options.add_argument("modes", nargs="*", metavar="MODE", help=f"of {', '.join(MODES)}; all")
    given = options.parse_args(arguments)
    for mode in given.modes or MODES:
        if mode not in MODES:
            options.error(f"there is no mode {mode}: use {', '.join(MODES)}")
        for family in ("4", "6"):
            count = round(per_packet(given.build, mode, family), 1)
            print(json.dumps({"mode": mode, "family": family, "instructions": count}), flush=True)


if __name__ == "__main__":
    try:
        main()
    except subprocess.CalledProcessError as failed:
        sys.exit(f"{' '.join(map(str, failed.cmd))}: {failed.stderr.decode()[-500:]}")
