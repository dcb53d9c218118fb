# SPDX-License-Identifier: Apache-2.0
"""The contracts of api/ as Python modules that `make build` generates: `forwarder` and `agent`."""

import http.client
import json
import socket
import sys
from pathlib import Path

from tests.lab.process import CommandFailed
from tests.lab.wait import DEADLINE_S

GENERATED = Path(__file__).resolve().parents[2] / "build/python"
if not GENERATED.is_dir():
    raise ImportError(f"{GENERATED} is missing: run `make build`")
sys.path.append(str(GENERATED))

from steelyard.agent.v1 import agent_pb2 as agent  # noqa: E402
from steelyard.forwarder.v1 import forwarder_pb2 as forwarder  # noqa: E402, F401

SERVICE = "/steelyard.agent.v1.AgentService/"


class CallFailed(CommandFailed):
    """The agent refused a call or failed; the text is its message."""


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("agent", timeout=DEADLINE_S)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(str(self.path))


class Agent:
    """Calls of the agent's API over its socket, without the command line: a call takes a
    millisecond or two, a command as long as a program takes to start."""

    def __init__(self, path):
        self.path = path

    def call(self, method, **fields):
        """Calls `method` with a request of these fields. Returns the response; raises CallFailed
        for errors."""
        request = getattr(agent, f"{method}Request")(**fields)
        connection = _UnixConnection(self.path)
        try:
            connection.request(
                "POST",
                SERVICE + method,
                request.SerializeToString(),
                {"Content-Type": "application/proto", "Connect-Protocol-Version": "1"},
            )
            answer = connection.getresponse()
            body = answer.read()
        finally:
            connection.close()
        if answer.status != http.client.OK:
            raise CallFailed(f"{method}: {json.loads(body)['message']}")
        return getattr(agent, f"{method}Response").FromString(body)
