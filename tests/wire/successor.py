# SPDX-License-Identifier: Apache-2.0
"""Successors for upgrades that fail at a chosen stage.

They are short programs that speak the protocol of dataplane/forwarder/upgrade_message.h."""

import stat
import sys

VERSION = 1

PROGRAM = """\
#!{python}
import os, signal, socket, struct, sys
FORMAT = "=IHH512s4Q"
HELLO, PREPARED, SEALED, READY, FAILED = range(1, 6)
fd = int(sys.argv[sys.argv.index("--inherit") + 1])
old = socket.socket(fileno=fd)
def send(kind, text="", version={version}):
    old.send(struct.pack(FORMAT, 0x53594241, version, kind, text.encode(), 0, 0, 0, 0))
def expect(kind):
    got = struct.unpack(FORMAT, old.recv(4096))
    if got[2] != kind:
        sys.exit(99)
expect(HELLO)
{stage}
"""

STAGES = {
    "exits": "sys.exit(3)",
    "dies": "os.kill(os.getpid(), signal.SIGKILL)",
    "fails": "send(FAILED, 'out of luck')",
    "speaks-otherwise": f"send(PREPARED, version={VERSION + 1})",
    "ready-too-early": "send(READY)\nsignal.pause()",
    "hangs": "signal.pause()",
    "dies-sealed": "send(PREPARED)\nexpect(SEALED)\nos.kill(os.getpid(), signal.SIGKILL)",
    "fails-sealed": "send(PREPARED)\nexpect(SEALED)\nsend(FAILED, 'out of luck')",
}


def script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def successor(folder, stage):
    """Writes a program that fails as its entry in STAGES says."""
    text = PROGRAM.format(python=sys.executable, version=VERSION, stage=STAGES[stage])
    return script(folder / f"successor-{stage}", text)
