# SPDX-License-Identifier: Apache-2.0
"""Talks to the forwarder's control socket without its agent: frames of a length and a message.

api/steelyard/forwarder/v1/forwarder.proto is the contract; tests.lab.api has its messages.
"""

import socket
import struct

from tests.lab.api import forwarder as pb
from tests.lab.clients import receive_exactly


def request(request_id=7, version=pb.VERSION_CURRENT, **body):
    """A Request's bytes; its body is one field, `status=pb.StatusRequest()` by default."""
    body = body or {"status": pb.StatusRequest()}
    return pb.Request(version=version, id=request_id, **body).SerializeToString()


def frame(message):
    return struct.pack("!I", len(message)) + message


class Control:
    """One connection. A context manager."""

    def __init__(self, path, timeout_s=10):
        self.socket = socket.socket(socket.AF_UNIX)
        # Blocking: waits if the backlog is full.
        self.socket.connect(str(path))
        self.socket.settimeout(timeout_s)

    def send(self, data):
        self.socket.sendall(data)

    def receive(self):
        """The next Response."""
        (size,) = struct.unpack("!I", receive_exactly(self.socket, 4))
        return pb.Response.FromString(receive_exactly(self.socket, size))

    def error_code(self):
        """The error code of the next response, 0 if there is none."""
        return self.receive().error.code

    def ask(self, **body):
        """The Response to one request."""
        self.send(frame(request(**body)))
        return self.receive()

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
