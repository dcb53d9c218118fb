# SPDX-License-Identifier: Apache-2.0
"""A small network on one machine: namespaces, veth pairs, bridges, and real programs in them.

docs/testing.md has a drawing of it and explains its use."""

from tests.lab.capture import Capture
from tests.lab.config import Config, Server, Service
from tests.lab.lab import Lab
from tests.lab.netns import Namespace
from tests.lab.process import CommandFailed, Process
from tests.lab.topology import Host, Network
from tests.lab.wait import Expired, wait_until

__all__ = [
    "Capture",
    "CommandFailed",
    "Config",
    "Expired",
    "Host",
    "Lab",
    "Namespace",
    "Network",
    "Process",
    "Server",
    "Service",
    "wait_until",
]
