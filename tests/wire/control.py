# SPDX-License-Identifier: Apache-2.0
"""Speaks to the forwarder's control socket without its agent: frames of a length and a message.

Only what the tests of the socket itself need; api/steelyard/forwarder/v1/forwarder.proto is the
contract.
"""

import socket
import struct

from tests.lab.clients import receive_exactly

VERSION = 1
STATUS, APPLY = 10, 11  # fields of Request.body
ERROR_FIELD = 3  # of Response
MALFORMED, TOO_LARGE, UNSUPPORTED = 1, 2, 3  # Code


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    """A field of a message: numbers as varints, bytes with their length."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def request(body=STATUS, content=b"", version=VERSION, request_id=7):
    return field(1, version) + field(2, request_id) + field(body, content)


def frame(message):
    return struct.pack("!I", len(message)) + message


def read_varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def parse(message):
    """{field number: last value}."""
    found, at = {}, 0
    while at < len(message):
        tag, at = read_varint(message, at)
        if tag & 7 == 0:
            found[tag >> 3], at = read_varint(message, at)
        else:
            size, at = read_varint(message, at)
            found[tag >> 3], at = message[at : at + size], at + size
    return found


class Control:
    """One connection. A context manager."""

    def __init__(self, path, timeout_s=10):
        self.socket = socket.socket(socket.AF_UNIX)
        # Blocking: a full backlog is waited for.
        self.socket.connect(str(path))
        self.socket.settimeout(timeout_s)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        (size,) = struct.unpack("!I", receive_exactly(self.socket, 4))
        return parse(receive_exactly(self.socket, size))

    def error_code(self):
        """Code of the next answer's error, 0 if there is none."""
        answer = self.receive()
        return parse(answer[ERROR_FIELD]).get(1, 0) if ERROR_FIELD in answer else 0

    def ended(self):
        """Whether the forwarder closes the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
