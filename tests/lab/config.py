# SPDX-License-Identifier: Apache-2.0
"""Builds the agent's configuration file from objects that tests change and write again."""

from dataclasses import dataclass, field


@dataclass
class Server:
    address: str
    port: int
    weight: int = 1
    drain: bool = False
    backup: bool = False
    max_sessions: int = 0

    def value(self):
        value = {"address": self.address, "port": self.port, "weight": self.weight}
        for key in ("drain", "backup", "max_sessions"):
            if getattr(self, key):
                value[key] = getattr(self, key)
        return value


@dataclass
class Service:
    name: str
    vip: str
    port: int
    protocol: str = "tcp"
    scheduler: str = "rr"
    mode: str = "fnat"
    # In the file's form: hash_on, persistence, slow_start, one_packet, sloppy_tcp, resets, …
    spread: dict = field(default_factory=dict)
    timeouts: dict = field(default_factory=dict)
    health: dict = field(default_factory=lambda: {"type": "none"})
    servers: list = field(default_factory=list)

    def server(self, address):
        return next(server for server in self.servers if server.address == address)

    def value(self):
        value = {
            "name": self.name,
            "vip": self.vip,
            "port": self.port,
            "protocol": self.protocol,
            "mode": self.mode,
            "scheduler": self.scheduler,
            **self.spread,
            "health": self.health,
            "servers": [server.value() for server in self.servers],
        }
        return value | ({"timeouts": self.timeouts} if self.timeouts else {})


@dataclass
class Config:
    local_addresses: list
    services: list = field(default_factory=list)
    peer_local_addresses: list = field(default_factory=list)
    metrics: str = ""
    export: dict = field(default_factory=dict)  # in the file's form
    snat: list = field(default_factory=list)  # rules, in the file's form
    access_lists: list = field(default_factory=list)  # likewise
    access_sets: list = field(default_factory=list)
    access: str = ""
    tenants: list = field(default_factory=list)  # in the file's form
    limits: list = field(default_factory=list)  # likewise
    shaping: list = field(default_factory=list)  # likewise
    routes: dict = field(default_factory=dict)  # in the file's form

    def __getitem__(self, name):
        return next(service for service in self.services if service.name == name)

    def without_defence(self):
        """Switches the SYN defence off: SYNs always create sessions, even forged ones."""
        for service in self.services:
            if service.protocol == "tcp":
                service.spread["syn_defence"] = "off"

    def text(self):
        value = {
            "version": 1,
            "local_addresses": self.local_addresses,
            "services": [service.value() for service in self.services],
        }
        if self.peer_local_addresses:
            value["peer_local_addresses"] = self.peer_local_addresses
        for key in ("access_sets", "access_lists", "access"):
            if getattr(self, key):
                value[key] = getattr(self, key)
        for key in ("tenants", "limits", "shaping"):
            if getattr(self, key):
                value[key] = getattr(self, key)
        if self.snat:
            value["snat"] = self.snat
        if self.metrics:
            value["metrics"] = {"listen": self.metrics}
        if self.export:
            value["export"] = self.export
        if self.routes:
            value["routes"] = self.routes
        return "\n".join(yaml_lines(value)) + "\n"


def yaml_lines(value, indent=""):
    """Returns plain block YAML of dictionaries, lists and scalars."""
    for key, item in value.items():
        if isinstance(item, dict) and item:
            yield f"{indent}{key}:"
            yield from yaml_lines(item, indent + "  ")
        elif isinstance(item, list) and item and isinstance(item[0], dict):
            yield f"{indent}{key}:"
            for entry in item:
                first, *rest = yaml_lines(entry, indent + "    ")
                yield f"{indent}  - {first.strip()}"
                yield from rest
        elif isinstance(item, list):
            yield f"{indent}{key}: [{', '.join(map(scalar, item))}]"
        else:
            yield f"{indent}{key}: {scalar(item)}"


def scalar(item):
    if isinstance(item, bool):
        return "true" if item else "false"
    if isinstance(item, str) and (not item or item[0] in "-?:,[]{}#&*!|>'\"%@`" or ":" in item):
        return f'"{item}"'
    return str(item)
