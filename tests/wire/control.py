# SPDX-License-Identifier: Apache-2.0
"""Speaks the control protocol to the forwarder without its agent: length-prefixed messages.

api/steelyard/forwarder/v1/forwarder.proto is the contract; tests.lab.api has its messages."""

import socket
import struct

from tests.lab.api import forwarder as pb
from tests.lab.clients import receive_exactly


def request(request_id=7, version=pb.VERSION_CURRENT, **body):
    """Returns the bytes of a Request whose only body field is `status=pb.StatusRequest()` by
    default."""
    body = body or {"status": pb.StatusRequest()}
    return pb.Request(version=version, id=request_id, **body).SerializeToString()


def frame(message):
    return struct.pack("!I", len(message)) + message


class Control:
    """One connection; a context manager."""

    def __init__(self, path, timeout_s=60):
        self.socket = socket.socket(socket.AF_UNIX)
        # Blocking: connect() waits while the backlog is full.
        self.socket.connect(str(path))
        self.socket.settimeout(timeout_s)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """Returns the next Response."""
        (size,) = struct.unpack("!I", receive_exactly(self.socket, 4))
        return pb.Response.FromString(receive_exactly(self.socket, size))

    def error_code(self):
        """Returns the error code of the next response, 0 if it has none."""
        return self.receive().error.code

    def ask(self, **body):
        """Sends one request; returns its Response."""
        self.send(frame(request(**body)))
        return self.receive()

    def ended(self):
        """Returns whether the forwarder has closed the connection."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()
