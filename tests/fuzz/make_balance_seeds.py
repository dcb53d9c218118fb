#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_control, fuzz_journal and fuzz_pipeline into corpus/."""

import pathlib
import struct
import subprocess

HERE = pathlib.Path(__file__).parent
PROTO = HERE.parent.parent / "api/steelyard/forwarder/v1"

KEY = r'{ protocol: PROTOCOL_TCP vip: "\300\000\002\001" port: 80 }'
LOCAL = r'local_address { address: "\012\001\000\001" }'
SERVER = r'server { address: "\012\000\000\001" port: 80 weight: 5 state: SERVER_STATE_UP }'
SERVICE = f'key {KEY} name: "web" mode: MODE_FNAT scheduler: SCHEDULER_WRR timeouts {{ udp_s: 9 }}'
HASHED = (
    f'key {KEY} name: "web" mode: MODE_FNAT scheduler: SCHEDULER_MAGLEV hash_on: HASH_ON_TUPLE '
    "persistence { timeout_s: 9 prefix4: 24 prefix6: 64 } slow_start_s: 2 max_sessions: 3"
)
BACKUP = (
    r'server { address: "\012\000\000\002" port: 80 weight: 1 state: SERVER_STATE_UP '
    "backup: true max_sessions: 2 }"
)
CHANGES = (
    f"changes {{ put_{LOCAL} }} changes {{ put_service {{ {SERVICE} }} }} "
    f"changes {{ put_server {{ service {KEY} {SERVER} }} }}"
)


def crc32c(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


def octets(data):
    return "".join(f"\\{byte:03o}" for byte in data)


DIGEST = octets(bytes(range(32)))
SET4 = bytes([10, 0, 0, 0, 8, 192, 0, 2, 7, 32])
SET = struct.pack("<II", 2, 1) + SET4 + bytes([32, 1, *[0] * 14, 32])
DATA = f'put_set_data {{ digest: "{DIGEST}" size: {len(SET)} crc32c: {crc32c(SET)}'
SET_LIST = (
    r'put_access_list { name: "edge" rules { action: ACCESS_ACTION_DROP from_sets: "bad" } '
    "otherwise: ACCESS_ACTION_ALLOW }"
)

LIMIT = (
    f'put_limit {{ name: "acme" services {KEY} vips: "\\300\\000\\002\\002" tenant: "acme" '
    "unit: LIMIT_UNIT_BITS per_second: 1000000 burst: 150000 layer: LIMIT_LAYER_L2 "
    "direction: LIMIT_DIRECTION_TO_SERVERS action: LIMIT_ACTION_MARK dscp: 8 }"
)
LIMIT_CLIENTS = (
    'put_limit { name: "each" unit: LIMIT_UNIT_SESSIONS per_second: 10 burst: 20 clients { '
    r'within { address: "\012\000\000\000" length: 8 } prefix4: 24 prefix6: 64 most: 9 } '
    f"services {KEY} }}"
)
CLASSES = (
    'classes { name: "gold" weight: 1 queue: 99 dscp: 46 } '
    'classes { name: "bulk" priority: 7 weight: 9 queue: 9 maximum: 90000 early_from: 50 '
    "early_to: 90 early_percent: 10 }"
)
TENANTS = (
    f'tenants {{ name: "acme" guaranteed: 500000 maximum: 900000 weight: 3 services {{ name: "web" '
    f'weight: 2 class: "gold" services {KEY} }} services {{ weight: 1 }} }} '
    r'tenants { weight: 1 services { weight: 1 vips: "\300\000\002\003" } }'
)
SHAPING = (
    f'put_shaping {{ port: "wan" rate: 1000000 burst: 9000 layer: LIMIT_LAYER_L1 '
    f"{CLASSES} {TENANTS} }}"
)
LIMITED = f"{CHANGES} changes {{ {LIMIT} }} changes {{ {LIMIT_CLIENTS} }}"

REQUESTS = {
    "status": "status {}",
    "get-config": "get_config { limit: 3 }",
    "list-services": "list_services { only { protocol: PROTOCOL_UDP port: 53 } }",
    "list-sessions": r'list_sessions { client: "\001\002\000\004" limit: 10 }',
    "list-drops": "list_drops {}",
    "list-ports": "list_ports {}",
    "list-workers": "list_workers {}",
    "list-slots": "list_slots {}",
    "fetch-samples": "fetch_samples { after: 1 received: 7 dropped: 3 limit: 9 }",
    "stage": f"apply {{ {CHANGES} }}",
    "commit": f"apply {{ {CHANGES} commit: true }}",
    "spread": f"apply {{ changes {{ put_service {{ {HASHED} }} }} "
    f"changes {{ put_server {{ service {KEY} {BACKUP} }} }} commit: true }}",
    "refused": f"apply {{ {CHANGES} changes {{ delete_{LOCAL} }} commit: true }}",
    "set-begin": f"{DATA} }}",
    "set-piece": f'{DATA} piece: "{octets(SET[:9])}" }}',
    "set-rest": f'{DATA} offset: 9 piece: "{octets(SET[9:])}" }}',
    "set-commit": f'apply {{ changes {{ put_access_set {{ name: "bad" digest: "{DIGEST}" }} }} '
    f"changes {{ {SET_LIST} }} commit: true }}",
    "set-end": 'apply { changes { delete_access_list: "edge" } '
    'changes { delete_access_set: "bad" } commit: true }',
    "limited": f"apply {{ {LIMITED} commit: true }}",
    "list-limits": "list_limits {}",
    "unlimited": 'apply { changes { delete_limit: "acme" } changes { delete_limit: "each" } '
    "commit: true }",
    "shaped": f"apply {{ {CHANGES} changes {{ {SHAPING} }} commit: true }}",
    "list-shaping": "list_shaping {}",
    "unshaped": 'apply { changes { delete_shaping: "wan" } commit: true }',
    "deleted": f"apply {{ changes {{ delete_service {KEY} }} commit: true }}",
}
LISTS = {
    "lifecycle": ["commit", "list-services", "get-config", "deleted", "status"],
    "policies": ["commit", "spread", "list-services", "commit", "spread"],
    "staged": ["stage", "stage", "refused", "commit", "refused"],
    "sets": ["set-begin", "set-piece", "set-rest", "set-commit", "get-config", "set-end"],
    "limits": ["limited", "list-limits", "get-config", "limited", "unlimited"],
    "shaping": ["shaped", "list-shaping", "get-config", "shaped", "unshaped"],
    "reading": ["get-config", "list-services", "list-sessions", "fetch-samples"],
}

FIN, SYN, RST, ACK = 1, 2, 4, 16
PAYLOAD, LARGE, FIX_IP, FIX_L4, CUT = 1, 2, 4, 8, 16


def encode(text, message="Request"):
    if message == "Request":
        text = f"version: 1 id: 7 {text}"
    return subprocess.run(
        [
            "protoc",
            f"--proto_path={PROTO}",
            f"--encode=steelyard.forwarder.v1.{message}",
            "forwarder.proto",
        ],
        input=text.encode(),
        stdout=subprocess.PIPE,
        check=True,
    ).stdout


# Small on the wire, large in memory: empty changes, and unknown fields.
BOMBS = {"empty-changes": b"\x0a\x00", "unknown-fields": b"\xf8\x07\x00"}


def bomb(unit, times):
    body = unit * times
    return b"\x08\x01\x5a" + bytes([len(body) & 0x7F | 0x80, len(body) >> 7]) + body


def control():
    for name, text in REQUESTS.items():
        if name not in sum((LISTS[name] for name in ("reading", "sets", "limits", "shaping")), []):
            yield name, b"\x01" + encode(text)
    for name, members in LISTS.items():
        bodies = [encode(REQUESTS[member]) for member in members]
        yield name, b"\x00" + b"".join(struct.pack(">H", len(body)) + body for body in bodies)
    for name, unit in BOMBS.items():
        yield name, b"\xff" + bomb(unit, 500)
    yield "starved", b"\x21" + encode(REQUESTS["commit"])


def entries(*texts):
    bodies = [encode(text, "ApplyRequest") for text in texts]
    return b"\x00" + b"".join(struct.pack(">H", len(body)) + body for body in bodies)


def journal():
    delete = f"changes {{ delete_service {KEY} }}"
    yield "lifecycle", entries(CHANGES, delete, CHANGES)
    yield "refused", entries(CHANGES, f"changes {{ delete_{LOCAL} }}", delete)
    clear = 'changes { delete_limit: "acme" } changes { delete_limit: "each" }'
    yield "limits", entries(LIMITED, clear, LIMITED)
    yield (
        "shaping",
        entries(f"{CHANGES} changes {{ {SHAPING} }}", 'changes { delete_shaping: "wan" }'),
    )
    header = b"\x01STLYARDJ" + struct.pack("<II", 1, 0)
    yield "torn", header + struct.pack("<IIQ", 40, 0, 1) + bytes(20)
    yield "damaged", header + struct.pack("<IIQ", 8, 0, 1) + bytes(8)


def overlay(over):
    return bytes([len(over)]) + bytes(byte for pair in over for byte in pair)


def client(service, flags, variation=0, over=()):
    return bytes([1, service, flags, variation]) + overlay(over)


def answer(flags, variation=0, over=()):
    return bytes([2, flags, variation]) + overlay(over)


def wait(seconds):
    return bytes([3, seconds])


def error(kind, code, word=160, quoted=60, variation=0, over=()):
    return bytes([4, kind, code, word, quoted, variation]) + overlay(over)


def pipeline():
    for family, service in {"v4": 0, "v6": 2}.items():
        begin = client(service, SYN) + answer(SYN | ACK) + answer(ACK, PAYLOAD)
        end = answer(FIN | ACK) + answer(FIN | ACK) + answer(ACK) + wait(6)
        yield f"tcp-{family}", begin + answer(ACK, PAYLOAD) + end
        yield f"reset-{family}", begin + answer(RST) + client(service, SYN) + wait(3)
    for family, service in {"v4": 1, "v6": 5}.items():
        talk = answer(0, PAYLOAD) + answer(0, PAYLOAD | LARGE) + wait(1) + answer(0)
        yield f"udp-{family}", client(service, 0, PAYLOAD) + talk
    for family, (service, echo) in {"v4": (128, 8), "v6": (130, 128)}.items():
        yield f"echo-{family}", client(service, echo) + client(service, 3)
    for family, (service, kinds) in {
        "v4": (0, ((3, 1), (3, 4), (11, 0), (12, 0))),
        "v6": (2, ((1, 3), (2, 0), (3, 0), (4, 0))),
    }.items():
        begin = client(service, SYN) + answer(SYN | ACK) + answer(ACK, PAYLOAD)
        # after each error, the next one quotes it
        yield f"error-{family}", b"".join(begin + error(*kind) for kind in kinds)
        yield f"error-back-{family}", begin + answer(ACK, PAYLOAD) + error(*kinds[1])
        yield (
            f"error-wrong-{family}",
            begin
            + error(*kinds[1], variation=FIX_L4, over=[(50, 1)])
            + answer(ACK)
            + error(*kinds[0], quoted=20)
            + answer(ACK)
            + error(*kinds[0], over=[(70, 1)]),
        )
    yield "ttl-v4", client(0, SYN, FIX_IP, [(22, 1)])
    yield "ttl-v6", client(2, SYN, FIX_IP, [(21, 1)]) + wait(0)
    yield "big-v4", client(0, SYN, PAYLOAD | LARGE) + client(0, SYN, PAYLOAD | LARGE | FIX_L4)
    yield "raw", bytes([0, 0, 0, 60]) + bytes(range(60))
    yield "special", b"".join(client(64 + service, SYN) for service in range(6))
    wrong = client(0, SYN, 0, [(50, 1)]) + client(0, SYN, CUT, [(0, 30)])
    yield "wrong", wrong + client(0, SYN, FIX_IP, [(14, 0x46)])


def main():
    folders = {"control": control(), "journal": journal(), "pipeline": pipeline()}
    for folder, seeds in folders.items():
        target = HERE / "corpus" / folder
        target.mkdir(parents=True, exist_ok=True)
        for name, data in seeds:
            (target / name).write_bytes(data)


if __name__ == "__main__":
    main()
