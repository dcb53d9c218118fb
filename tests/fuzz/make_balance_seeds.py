#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the seeds of fuzz_control and fuzz_pipeline into corpus/."""

import pathlib
import struct
import subprocess

HERE = pathlib.Path(__file__).parent
PROTO = HERE.parent.parent / "api/steelyard/forwarder/v1"

KEY = r'key { protocol: PROTOCOL_TCP vip: "\300\000\002\001" port: 80 }'
OF = r'service { protocol: PROTOCOL_TCP vip: "\300\000\002\001" port: 80 }'
LOCAL = r'put_local_address { address: "\012\001\000\001" }'
SERVICE = "put_service { %s name: \"web\" mode: MODE_FNAT scheduler: SCHEDULER_WRR timeouts { udp_s: 9 } }" % KEY
SERVER = r'put_server { %s server { address: "\012\000\000\001" port: 80 weight: 5 state: SERVER_STATE_UP } }' % OF
APPLY = f"changes {{ {LOCAL} }} changes {{ {SERVICE} }} changes {{ {SERVER} }}"

REQUESTS = {
    "status": "status {}",
    "get-config": "get_config { limit: 3 }",
    "list-services": "list_services { only { protocol: PROTOCOL_UDP port: 53 } }",
    "list-sessions": r'list_sessions { client: "\001\002\003\004" limit: 10 }',
    "list-drops": "list_drops {}",
    "list-ports": "list_ports {}",
    "list-workers": "list_workers {}",
    "list-slots": "list_slots {}",
    "stage": f"apply {{ {APPLY} }}",
    "commit": f"apply {{ {APPLY} commit: true }}",
    "refused": f"apply {{ {APPLY} changes {{ delete_{LOCAL[4:]} }} commit: true }}",
    "deleted": "apply { changes { delete_service { %s } } commit: true }" % KEY[6:-2],
}


def encode(text):
    return subprocess.run(
        ["protoc", f"--proto_path={PROTO}", "--encode=steelyard.forwarder.v1.Request", "forwarder.proto"],
        input=f"version: 1 id: 7 {text}".encode(), stdout=subprocess.PIPE, check=True).stdout


def control():
    for name, text in REQUESTS.items():
        yield name, b"\x01" + encode(text)
    for name, texts in {"life": ["commit", "list-services", "get-config", "deleted", "status"],
                        "staged": ["stage", "stage", "refused", "commit", "refused"]}.items():
        bodies = [encode(REQUESTS[text]) for text in texts]
        yield name, b"\x00" + b"".join(struct.pack(">H", len(body)) + body for body in bodies)


SYN, FIN, RST, ACK = 2, 1, 4, 16


def client(service, flags, variation=0, over=()):
    return bytes([1, service, flags, variation, len(over)]) + bytes(b for pair in over for b in pair)


def answer(flags, variation=0, over=()):
    return bytes([2, flags, variation, len(over)]) + bytes(b for pair in over for b in pair)


def pipeline():
    for family, service in {"v4": 0, "v6": 2}.items():
        yield f"tcp-{family}", (client(service, SYN) + answer(SYN | ACK) + answer(ACK, 1) + answer(ACK, 1)
                                + answer(FIN | ACK) + answer(FIN | ACK) + answer(ACK) + bytes([3, 6]))
        yield f"reset-{family}", (client(service, SYN) + answer(SYN | ACK) + answer(ACK) + answer(RST)
                                  + client(service, SYN) + bytes([3, 3]))
    for family, service in {"v4": 1, "v6": 5}.items():
        yield f"udp-{family}", client(service, 0, 1) + answer(0, 1) + answer(0, 3) + bytes([3, 1]) + answer(0)
    for family, (service, echo) in {"v4": (128, 8), "v6": (130, 128)}.items():
        yield f"echo-{family}", client(service, echo) + client(service, 3)
    yield "ttl-v4", client(0, SYN, 4, [(22, 1)])
    yield "ttl-v6", client(2, SYN, 4, [(21, 1)])
    yield "big-v4", client(0, SYN, 3) + client(0, SYN, 8 | 3)
    yield "raw", bytes([0, 0, 0, 60]) + bytes(range(60))
    yield "odd", b"".join(client(64 + n, SYN) for n in range(6))
    yield "wrong", client(0, SYN, 0, [(50, 1)]) + client(0, SYN, 16, [(0, 30)]) + client(0, SYN, 4, [(14, 0x46)])


def main():
    for folder, seeds in {"control": control(), "pipeline": pipeline()}.items():
        target = HERE / "corpus" / folder
        target.mkdir(parents=True, exist_ok=True)
        for name, data in seeds:
            (target / name).write_bytes(data)


if __name__ == "__main__":
    main()
