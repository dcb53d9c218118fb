#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_sync: datagrams of a peer (dataplane/balance/sync).

make_sync_seeds.py corpus/sync
"""

import struct
import sys
from pathlib import Path

PARTS, HELLO = 1, 2
ENTRIES, APPLIED, GAP, COPY = 1, 2, 3, 4
PUT, CHANGE, DELETE, COPY_BEGIN, COPY_END, SUM = 1, 2, 3, 4, 5, 6
CLIENT, CLIENT_V6, PAIR = 1, 2, 4
ESTABLISHED = 3


def identity(form, number, client=b""):
    """Of a session whose port is `number`."""
    return struct.pack("<BB3sHHH", form, 1, b"\x05\0\0", number, number + 7, 80) + client


def state():
    return struct.pack("<BBBBHII", ESTABLISHED, 0, 0, 0, 3, 1000, 2000)


def entry(kind, body=b""):
    return struct.pack("BB", kind, 2 + len(body)) + body


def put(number, v6=False, pair=False):
    form = CLIENT | (CLIENT_V6 if v6 else 0) | (PAIR if pair else 0)
    client = bytes(range(1, 17)) if v6 else bytes((10, 0, 0, 1))
    body = identity(form, number, client) + state() + struct.pack("<I", 60)
    return entry(PUT, body + (bytes(10) + b"\xff\xff" + bytes(20) if pair else b""))


def change(number):
    return entry(CHANGE, identity(0, number) + state())


def delete(number):
    return entry(DELETE, identity(0, number))


def part(slot, number, *entries, kind=ENTRIES, generation=0):
    body = b"".join(entries)
    return struct.pack("<HBIIH", slot, kind, generation, number, len(body)) + body


def datagram(how, *parts):
    body = b"".join(parts)
    return struct.pack("<BH", how, len(body)) + body


def hello():
    return struct.pack("<QQQQQQBBBB32s", 0, 99, 1, 2, 3, 4, 1, 1, 2, 0, b"peer")


SEEDS = {
    "puts": [datagram(PARTS, part(3, 1, put(1), put(2, v6=True), put(3, pair=True)))],
    "life": [
        datagram(PARTS, part(3, 1, put(1))),
        datagram(PARTS, part(3, 2, change(1)), part(9, 1, put(5))),
        datagram(PARTS, part(3, 3, delete(1))),
    ],
    "gap": [datagram(PARTS, part(3, 5, put(1))), datagram(PARTS, part(3, 1, put(1), put(2)))],
    "copy": [
        datagram(PARTS, part(3, 1, put(1), put(2), put(3))),
        datagram(PARTS, part(3, 4, entry(COPY_BEGIN), put(2), delete(1), entry(COPY_END))),
        datagram(PARTS, part(3, 8, entry(SUM, struct.pack("<QI", 3, 1)))),
    ],
    "generations": [
        datagram(PARTS, part(3, 1, put(1), generation=1)),
        datagram(PARTS, part(3, 1, put(2), generation=2)),
        datagram(PARTS, part(3, 2, put(3), generation=1)),
    ],
    "answers": [
        datagram(PARTS, *(part(3, 1, kind=kind) for kind in (APPLIED, GAP, COPY))),
        datagram(PARTS, part(256, 1, put(1))),
    ],
    "hello": [datagram(HELLO, hello())],
    "forged": [datagram(0, b"YS\x01\x01\x02\0\x02\0" + struct.pack("<QQQ", 77, 0, 1) + bytes(40))],
}


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    for name, datagrams in SEEDS.items():
        (folder / name).write_bytes(b"".join(datagrams))


if __name__ == "__main__":
    main()
