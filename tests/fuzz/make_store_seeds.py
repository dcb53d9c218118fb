#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_store into corpus/store: edits of a session file, see fuzz_store.c."""

import pathlib
import struct

TARGET = pathlib.Path(__file__).parent / "corpus/store"

FIX_CHECKS, REPLACE, SEALED, RESIZE, FIX_COMMITS = 1, 2, 4, 8, 16

# dataplane/balance/session/session_file.h: struct session_file
FIELDS = {
    "magic": (0, 8),
    "version": (8, 4),
    "bucket-size": (12, 2),
    "cursors": (18, 2),
    "slots": (20, 4),
    "file-size": (24, 8),
    "records": (32, 4),
    "buckets": (36, 4),
    "cold-at": (64, 8),
    "slot-size": (72, 8),
    "servers": (80, 4),
    "servers-at": (88, 8),
    "boot": (168, 16),
    "owner": (184, 8),
    "alive": (200, 8),
    "seal": (216, 40),
}
STATES, FIRST = 4096, 8192
# A slot of four records: cursors, one bucket, four hot halves, four cold ones.
BUCKET, HOT, COLD, SLOT = 128, 192, 320, 384


def edit(at, data):
    return struct.pack(">I", at)[1:] + bytes([len(data)]) + data


def record(slot, number):
    return FIRST + slot * SLOT + HOT + number * 32, FIRST + slot * SLOT + COLD + number * 16


def seeds():
    for name, mode in {"crashed": 0, "sealed": SEALED, "resized": RESIZE}.items():
        yield name, mode, edit(0, b"")
    yield "resized-taken", SEALED | RESIZE, edit(0, b"")
    for name, (at, size) in FIELDS.items():
        yield name, FIX_CHECKS, edit(at, b"\xff" * size)
    yield "no-check", 0, edit(192, bytes(8))
    yield "short", REPLACE, b"SYSLOTS\0\2\0\0\0"
    yield "text", REPLACE, b"#!/bin/sh\n"
    hot, cold = record(5, 0)
    yield "no-commit", 0, edit(cold + 12, bytes(2))
    yield "state", 0, edit(hot + 30, b"\xff")
    yield "server", FIX_COMMITS, edit(hot + 20, b"\x0f\0\0\3")
    yield "port", FIX_COMMITS, edit(hot + 18, b"\x12\x34")
    yield "index", 0, edit(FIRST + 5 * SLOT + BUCKET, b"\xff" * 64)
    yield "links", RESIZE, edit(cold, b"\xff" * 12)
    states = struct.pack("4I", 1, 2, 3, 4)
    yield "states", SEALED | FIX_CHECKS, edit(STATES + 5 * 16, states)
    yield "twice", 0, edit(record(6, 1)[0], bytes(31)) + edit(record(6, 1)[1], bytes(15))


def main():
    TARGET.mkdir(parents=True, exist_ok=True)
    for name, mode, edits in seeds():
        (TARGET / name).write_bytes(bytes([mode]) + edits)


if __name__ == "__main__":
    main()
