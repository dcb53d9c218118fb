#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Layers see those below them only: one forbidden include per layer must not compile.

    test_layers.py BUILD_DIRECTORY

Each layer's own compile command is taken from compile_commands.json and given one line to parse.
"""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

# Layer, one of its own headers or of a layer below, and one of a layer that it must not see.
LAYERS = [
    ("session", "session.h", "balance.h"),
    ("sync", "sync_session.h", "balance.h"),
    ("scheduler", "scheduler.h", "session.h"),
    ("access", "address_ranges.h", "session.h"),
    ("view", "balance.h", "forward.h"),
    ("path", "balance.h", "model.h"),
    ("config", "snat.h", "create.h"),
    ("saved", "model.h", "control.h"),
    ("peers", "end.h", "control.h"),
    ("control", "saved.h", "end.h"),
]


def command_of(build, layer):
    """How the layer's first source is compiled, and where."""
    for entry in json.loads((build / "compile_commands.json").read_text()):
        if f"balance/{layer}/" in entry["file"] and f"balance/{layer}/lib" in entry["output"]:
            return shlex.split(entry["command"]), entry["directory"]
    raise SystemExit(f"no source of {layer} in {build}/compile_commands.json")


def parse(build, layer, *headers):
    """What the compiler says to these includes."""
    command, directory = command_of(build, layer)
    for option in ("-o", "-MQ", "-MF", "-c"):
        at = command.index(option)
        del command[at : at + 2]
    command.remove("-MD")
    lines = "".join(f'#include "{header}"\n' for header in headers)
    done = subprocess.run(
        [*command, "-fsyntax-only", "-w", "-x", "c", "-"],
        cwd=directory,
        env={**os.environ, "LC_ALL": "C"},
        input=lines,
        text=True,
        capture_output=True,
        check=False,
    )
    return done.returncode, done.stderr


def main():
    build = Path(sys.argv[1])
    wrong = []
    print(f"1..{len(LAYERS)}")
    for number, (layer, seen, hidden) in enumerate(LAYERS, 1):
        # The header that is seen comes first: only the other one may be missing.
        code, text = parse(build, layer, seen, hidden)
        missing = "No such file" in text or "file not found" in text
        refused = code != 0 and hidden in text and missing
        print("ok" if refused else "not ok", number, f"{layer} sees {seen}, not {hidden}")
        if not refused:
            wrong.append(layer)
            print("#", text.strip()[:2000].replace("\n", "\n# ") or "it compiles")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
