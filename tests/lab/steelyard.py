# SPDX-License-Identifier: Apache-2.0
"""Steelyard in a lab: the forwarder, its agent, and the command line."""

import copy
import ipaddress
import json
import os
import signal
from dataclasses import dataclass, replace
from pathlib import Path

from tests.lab import api, pages, reap
from tests.lab.commands import run_steelyard
from tests.lab.config import Config, Server, Service
from tests.lab.lab import ROOT
from tests.lab.process import CommandFailed, run
from tests.lab.topology import v4, v6
from tests.lab.wait import wait_until

# SY_BUILD selects another build of the forwarder, for example build/asan.
BUILD = ROOT / os.environ.get("SY_BUILD", "build/dev")
FORWARDER = BUILD / "dataplane/forwarder/steelyard-forwarder"
STEELYARD = ROOT / "build/bin/steelyard"

MEMORY_MB = 128  # of huge pages
SMALL_PAGES_MB = 256  # without huge pages, where DPDK fragments its memory more
SANITIZED = {
    "ASAN_OPTIONS": "abort_on_error=1:detect_leaks=1:detect_stack_use_after_return=0",
    "UBSAN_OPTIONS": "print_stacktrace=1:halt_on_error=1",
}
FAST_CHECKS = {"interval": "500ms", "timeout": "500ms", "rise": 2, "fall": 4}
# Of stages where most tests do not stop a server: fast checks would cost more processor time than
# the rest of an idle stage.
CHECKS = {"interval": "2s", "timeout": "2s", "rise": 1, "fall": 2}

FORWARDER_NICE, AGENT_NICE = -10, -5  # as deploy/ has them

VIP = {4: "10.0.0.80", 6: "fd00::80"}
WEB, DNS, SERVER_WEB, SERVER_DNS = 80, 53, 8080, 5353


def local_addresses(net, count=2):
    return [v4(net, 200 + i) for i in range(count)] + [v6(net, 200 + i) for i in range(count)]


def web_and_dns(network, checked=True, scheduler="wrr"):
    """The services of most tests: web4 and web6 by TCP, dns4 and dns6 by UDP, on all servers."""
    health = {
        "tcp": {"type": "http", "path": "/healthz"} | CHECKS if checked else {"type": "none"},
        "udp": {"type": "tcp", "port": SERVER_DNS} | CHECKS if checked else {"type": "none"},
    }
    config = Config(local_addresses(network.back_net))
    for family in (4, 6):
        for kind, protocol, port, server_port in (
            ("web", "tcp", WEB, SERVER_WEB),
            ("dns", "udp", DNS, SERVER_DNS),
        ):
            servers = [Server(host.address(family), server_port) for host in network.server_hosts()]
            config.services.append(
                Service(
                    f"{kind}{family}",
                    VIP[family],
                    port,
                    protocol,
                    scheduler,
                    health=health[protocol],
                    servers=servers,
                )
            )
    return config


def memory_options(lab, huge=True):
    """Selects huge pages if the lab may use enough for two forwarders with sessions, as an upgrade
    needs."""
    if huge and pages.grant(lab.id, MEMORY_MB + 32):
        return ["--memory", MEMORY_MB]
    return ["--no-huge", "--memory", SMALL_PAGES_MB]


def is_in_sync(status):
    """Returns whether the forwarder has the agent's configuration, from a GetStatusResponse."""
    generation, forwarder = status.config.generation, status.forwarder
    return forwarder.connected and 0 < generation == forwarder.applied_generation


def state_word(server):
    return api.forwarder.ServerState.Name(server.state).removeprefix("SERVER_STATE_").lower()


@dataclass
class Options:
    """Options of the forwarder's start."""

    workers: int = 1
    mode: str = "auto"
    ring: int = 0  # packets in a receive queue; 0: the forwarder's default
    sessions: int = 65536  # 0: the forwarder's default
    huge: bool = True
    group: str = ""  # of its socket; "": the default
    probe: bool = False  # new addresses are probed first, which takes 0.3 s
    slot_key: str = ""  # a file; "": the existing key, or a new one
    peers: tuple = ()  # the words that make it a node among peers


class Steelyard:
    """A forwarder with an agent on one host of a lab, and their command line."""

    def __init__(self, lab, config, host="forwarder", **options):
        self.lab, self.host, self.config = lab, host, config
        self.options = Options(**options)
        self.dir = lab.dir / host
        self.dir.mkdir(exist_ok=True)
        self.file = self.dir / "steelyard.yaml"
        self.agent_socket = self.dir / "agent.sock"
        self.forwarder_socket = self.dir / "forwarder.sock"
        self.forwarder = None
        self.agent = None
        self.api = api.Agent(self.agent_socket)
        self.applied = None  # text of the agent's configuration; None: unknown
        self.memory = None
        self.env = dict(SANITIZED)
        self.agent_options, self.agent_user = [], []

    # ---- programs --------------------------------------------------------------------------------

    def start(self):
        self.start_forwarder()
        self.start_agent()
        self.wait_in_sync()
        return self

    def forwarder_argv(self, *words):
        place = ["--state", self.dir / "state", "--socket", self.forwarder_socket]
        instance = self.lab.id if self.host == "forwarder" else f"{self.lab.id}-{self.host}"
        return [FORWARDER, "--instance", instance, *place, *words]

    def forwarder_options(self):
        """Returns all options except those that identify this forwarder."""
        ports = self.lab.network.ports
        keys = f"mode={self.options.mode}" + f",ring={self.options.ring}" * bool(self.options.ring)
        argv = [word for port in ports for word in ("--port", f"{port},{keys}")]
        argv += ["--workers", self.options.workers]
        argv += ["--sessions", self.options.sessions] if self.options.sessions else []
        argv += ["--socket-group", self.options.group] if self.options.group else []
        argv += [] if self.options.probe else ["--probe", "off"]
        argv += ["--slot-key", self.options.slot_key] if self.options.slot_key else []
        argv += self.options.peers
        # The choice is kept: a later start finds the sessions only in the same memory.
        self.memory = self.memory or memory_options(self.lab, self.options.huge)
        # A system call that the filters lack ends the process, and so the test.
        return [*argv, "--seccomp", "trap", "--log", "info", *self.memory]

    def start_forwarder(self, wait=True):
        argv = self.forwarder_argv(*self.forwarder_options())
        reap.note_cleanup(self.lab.dir, self.host, self.forwarder_argv("--cleanup"))
        self.forwarder = self.lab.start(self.host, "steelyard-forwarder", argv, self.env)
        if wait:
            self.forwarder.wait_for(r"\bready\b")
        return self.forwarder

    def kill_forwarder(self):
        self.forwarder.kill()

    def restart_forwarder(self, number=signal.SIGTERM, **changes):
        """Ends the forwarder by a signal and starts it again, optionally with other options."""
        self.forwarder.stop(number)
        self.options = replace(self.options, **changes)
        return self.start_forwarder()

    def upgrade(self, binary=None, options=(), **changes):
        """Runs `steelyard upgrade`, optionally with other options; returns its output."""
        done = self.try_upgrade(binary, options, **changes)
        if done.returncode:
            raise CommandFailed(done.stdout + done.stderr)
        upgraded = json.loads(done.stdout)
        self.forwarder = self.lab.succeed(self.forwarder, upgraded["pid"])
        self.options = replace(self.options, **changes)
        return upgraded

    def try_upgrade(self, binary=None, options=(), **changes):
        """Like upgrade(), but it may fail; returns the CompletedProcess."""
        argv = [STEELYARD, "upgrade", "--forwarder", self.forwarder_socket, "-o", "json"]
        argv += ["--binary", binary] if binary else []
        if changes or options:
            before, self.options = self.options, replace(self.options, **changes)
            argv += ["--", *self.forwarder_argv(*self.forwarder_options())[1:], *options]
            self.options = before
        return run(argv, check=False)

    def wait_ready(self):
        """Waits until the forwarder has started again in the same process."""
        self.forwarder = copy.copy(self.forwarder)
        self.lab.processes.append(self.forwarder)

    def wait_reconnected(self):
        """Waits until the agent is connected to the present forwarder and has no change pending."""

        def reconnected():
            status = self.api.call("GetStatus")
            return status.forwarder.status.pid == self.forwarder.pid and is_in_sync(status)

        wait_until(reconnected, "the agent has found the new forwarder")

    def start_agent(self):
        if not self.file.exists():
            self.write_config()
        argv = [
            *self.agent_user,
            STEELYARD,
            "agent",
            "--watch",
            "--config",
            self.file,
            "--forwarder",
            self.forwarder_socket,
        ]
        argv += ["--socket", self.agent_socket, "--state", self.dir / "agent-state"]
        # A system call that its filter lacks ends the process, and so the test.
        argv += ["--seccomp", "trap", *self.agent_options]
        self.agent = self.lab.start(self.host, "steelyard-agent", argv)
        self.agent.wait_for("agent is ready")
        self.applied = None
        return self.agent

    def confine_agent(self, user, group, *, read_group, capabilities=()):
        """Runs the agent as a user, with directories as the units and steelyard-setup make them.
        Call it before the agent's first start."""
        place, state = self.dir / "agent", self.dir / "agent-state"
        files = self.dir / "etc"
        for directory, mode, owner in ((place, 0o755, user), (state, 0o700, user)):
            directory.mkdir(mode=mode)
            os.chown(directory, owner, group)
        files.mkdir()
        os.chown(files, 0, group)
        files.chmod(0o1770)
        self.file, self.agent_socket = files / "steelyard.yaml", place / "agent.sock"
        self.write_config()
        os.chown(self.file, user, group)
        self.api = api.Agent(self.agent_socket)
        self.agent_user = self.user_words(user, group, read_group, capabilities)

    @staticmethod
    def user_words(user, group, read_group, capabilities=()):
        caps = ",".join(["-all", *(f"+{name}" for name in capabilities)])
        words = ["setpriv", "--reuid", user, "--regid", group, "--groups", read_group]
        words += ["--bounding-set", caps, "--inh-caps", caps, "--ambient-caps", caps]
        return [*words, "--no-new-privs", "--"]

    def cleanup(self):
        """Removes the state of a stopped forwarder; returns the command's output."""
        return self.lab[self.host].ns.run(self.forwarder_argv("--cleanup"))

    def release(self):
        """Releases the state of a stopped forwarder except sessions; returns the command's
        output."""
        return self.lab[self.host].ns.run(self.forwarder_argv("--release"))

    # ---- configuration ---------------------------------------------------------------------------

    def has(self, config):
        """Returns whether agent and file are known to have this configuration."""
        text = config.text()
        return self.applied == text and self.file.read_text() == text

    def write_config(self):
        self.file.write_text(self.config.text())

    def apply(self):
        """Applies the current configuration by the agent; returns when the forwarder has it."""
        text = self.config.text()
        self.applied = None
        answer = self.api.call("ApplyConfig", yaml=text.encode(), file="-")
        self.applied = text
        return answer

    def in_sync(self):
        return is_in_sync(self.api.call("GetStatus"))

    def wait_in_sync(self):
        wait_until(self.in_sync, "the forwarder has the agent's configuration")

    # ---- reading ---------------------------------------------------------------------------------

    def cli(self, *words, **options):
        if words[0] == "apply":
            self.applied = None
        return run_steelyard("--socket", self.agent_socket, *words, **options)

    def get(self, what, *words):
        return json.loads(self.cli("get", what, *words, "-o", "json"))

    def service(self, name):
        return next(service for service in self.get("services") if service["name"] == name)

    def server(self, service, address):
        servers = self.get("servers", "--service", service)
        return next(server for server in servers if server["address"] == address)

    def states(self, service=""):
        """Returns the state of each server of one service, or of all: {("web4", "10.1.0.11"): "up",
        …}."""
        return {
            (info.service.name, str(ipaddress.ip_address(one.server.address))): state_word(
                one.server
            )
            for info in self.api.call("ListServices", name=service).services
            for one in info.servers
        }

    def wait_server(self, service, address, state):
        wait_until(
            lambda: self.states(service)[service, address] == state,
            f"{address} of {service} is {state}",
        )

    def wait_all_up(self):
        wait_until(
            lambda: all(state == "up" for state in self.states().values()), "all servers are up"
        )

    def drops(self):
        """Returns {"no-service": 3, …}, with the reasons that occurred."""
        return {
            drop.name: drop.packets for drop in self.api.call("ListDrops").drops if drop.packets
        }

    def sessions(self, *words):
        return self.get("sessions", *words)

    def session_file(self):
        """Returns the file of the session tables: in huge pages, or not."""
        places = (Path(p) / f"steelyard-{self.lab.id}" for p in ("/dev/hugepages", "/dev/shm"))
        (file,) = filter(Path.exists, places)
        return file

    def session_count(self):
        return self.api.call("GetStatus").forwarder.status.sessions
