# SPDX-License-Identifier: Apache-2.0
"""Shells, files, mail, names and monitoring: many pass each connection to a child."""

import contextlib
import shutil
import signal
import subprocess
from pathlib import Path

from tests.lab.clients import connect
from tests.lab.process import run
from tests.lab.servers import start_dns
from tests.programs.asks import BODY, both, command, held, talk
from tests.programs.checks import children, left_to_linux, proxies, reload, serves, threads
from tests.programs.gateways import CHILD
from tests.programs.program import Program

# ---- ssh -----------------------------------------------------------------------------------------

SSHD = """\
Port {port}
HostKey {dir}/host
AuthorizedKeysFile {dir}/key.pub
PidFile {dir}/pid
StrictModes no
UsePAM no
PermitRootLogin yes
MaxStartups 100
"""


def prepare_sshd(place):
    for name in ("host", "key"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", place.dir / name])
    Path("/run/sshd").mkdir(exist_ok=True)


def ssh_words(place, address, *words):
    options = ["-F", "none", "-i", place.dir / "key", "-p", place.program.port]
    for option in ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"):
        options += ["-o", option]
    return ["ssh", *options, *words[:-1], f"root@{address}", *words[-1:]]


def ssh(place, address):
    assert place.ask(ssh_words(place, address, "echo hello")) == "hello\n"


@contextlib.contextmanager
def ssh_session(place):
    argv = place.client.ns.command(ssh_words(place, place.host.v4, "echo hello; cat"))
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as one:
        assert one.stdout.readline() == b"hello\n"
        yield
        one.stdin.close()


def ssh_forwards(place, address):
    """ssh -W: sshd opens the connection."""
    request = "GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    argv = [*ssh_words(place, address, "-W", f"{place.client.v4}:8080", "")[:-1]]
    assert "client" in place.ask(argv, stdin=request)


# ---- files ---------------------------------------------------------------------------------------

VSFTPD = """\
background=NO
listen=NO
listen_ipv6=YES
listen_port={port}
anonymous_enable=YES
no_anon_password=YES
ftp_username=ftp
anon_root={dir}/files
secure_chroot_dir={dir}/empty
pasv_min_port=50000
pasv_max_port=60999
ssl_enable=YES
allow_anon_ssl=YES
force_anon_data_ssl=NO
force_anon_logins_ssl=NO
ssl_ciphers=HIGH
require_ssl_reuse=NO
rsa_cert_file={cert}
rsa_private_key_file={key}
"""


def prepare_ftp(place):
    for name in ("files", "empty"):
        (place.dir / name).mkdir()
    (place.dir / "files/hello").write_text(BODY)


def ftp(*words):
    def ask(place, address):
        assert place.curl(f"ftp://{place.at(address)}/hello", *words) == BODY

    return ask


FTP_TLS = ftp("--ssl-reqd", "--insecure")


def prepare_rsync(place):
    (place.dir / "files").mkdir()
    (place.dir / "files/hello").write_text(BODY)


RSYNC = """\
port = {port}
use chroot = no
pid file = {dir}/pid
log file = /dev/stderr
[files]
path = {dir}/files
"""


def rsync(place, address):
    at = f"[{address}]" if ":" in address else address
    copy = place.lab.dir / "copies" / address.replace(":", "-")
    shutil.rmtree(copy, ignore_errors=True)
    copy.mkdir(parents=True)
    place.ask(["rsync", "-a", f"rsync://{at}:{place.program.port}/files/", f"{copy}/"])
    assert (copy / "hello").read_text() == BODY


def rsync_list(place, address):
    at = f"[{address}]" if ":" in address else address
    assert "hello" in place.ask(["rsync", f"rsync://{at}:{place.program.port}/files/"])


def prepare_git(place):
    tree = place.dir / "repository"
    git = ["git", "-C", tree, "-c", "user.name=x", "-c", "user.email=x@x", "-c", "safe.directory=*"]
    run(["git", "init", "-q", tree])
    (tree / "hello").write_text(BODY)
    run([*git, "add", "hello"])
    run([*git, "commit", "-q", "-m", BODY])


def git(place, address):
    at = place.at(address)
    assert "HEAD" in place.ask(["git", "ls-remote", f"git://{at}/repository"])


# ---- names, mail, measurement --------------------------------------------------------------------

UNBOUND = """\
server:
    interface: 0.0.0.0@{port}
    interface: ::0@{port}
    interface: 0.0.0.0@{tls}
    interface: ::0@{tls}
    tls-port: {tls}
    tls-service-key: {key}
    tls-service-pem: {cert}
    access-control: 0.0.0.0/0 allow
    access-control: ::/0 allow
    num-threads: 2
    so-reuseport: yes
    do-udp: yes
    username: ""
    chroot: ""
    directory: {dir}
    pidfile: {dir}/pid
    use-syslog: no
    logfile: ""
    do-not-query-localhost: no
    module-config: "iterator"
    local-zone: "lab." nodefault
    local-zone: "own." static
    local-data: 'hello.own. TXT "hello"'
forward-zone:
    name: "lab."
    forward-addr: {peer}@5353
    forward-tcp-upstream: yes
"""


def dig(name="hello.own", answer='"hello"', *words, port="{port}"):
    return command(
        "dig",
        "+short",
        "+tcp",
        "+tries=1",
        "+time=60",
        *words,
        "-p",
        port,
        "@{address}",
        name,
        "TXT",
        answer=answer,
    )


NAMED = """\
options {
    directory "{dir}";
    pid-file "{dir}/pid";
    session-keyfile none;
    listen-on port {port} { {v4}; };
    listen-on-v6 port {port} { {v6}; };
    tls-port {tls};
    recursion no;
};
controls { };
zone "own" { type primary; file "zone"; };
"""
ZONE = """\
$TTL 60
@ IN SOA ns.own. root.own. 1 60 60 60 60
@ IN NS ns.own.
ns IN A {v4}
hello IN TXT "hello"
"""


def prepare_unbound(place):
    place.helpers.append(start_dns(place.lab, "client"))


INETD = "{port} stream tcp6 nowait root /bin/cat cat\n"

IPERF = command("iperf3", "-c", "{address}", "-p", "{port}", "-n", "4M", find="receiver")
IPERF_BACK = command("iperf3", "-c", "{address}", "-p", "{port}", "-n", "4M", "-R", find="receiver")


def status(place, address):
    got = place.curl(f"https://{place.at(address)}/")
    assert "s_server -accept" in got, got


@contextlib.contextmanager
def held6(place):
    with connect(place.client, place.host.v6, place.program.port) as one:
        yield one


def imap(place, address):
    got = place.curl(f"imap://{place.at(address)}/", "--user", "user:secret")
    assert "INBOX" in got, got


DOVECOT = """\
base_dir = {dir}/run
state_dir = {dir}/state
log_path = /dev/stderr
protocols = imap
ssl = no
disable_plaintext_auth = no
mail_location = maildir:{dir}/mail
import_environment = TZ LD_PRELOAD STEELYARD_RUN
default_login_user = nobody
default_internal_user = nobody
passdb {
    driver = static
    args = password=secret
}
userdb {
    driver = static
    args = uid=nobody gid=nogroup home={dir}
}
service imap-login {
    chroot =
    inet_listener imap {
        port = {port}
    }
    inet_listener imaps {
        port = 0
    }
}
"""

PROGRAMS = (
    Program(
        "sshd",
        7300,
        ("/usr/sbin/sshd", "-D", "-e", "-f", "{dir}/conf"),
        {
            "serves": serves(ssh),
            "proxies": left_to_linux(ssh_forwards),
            "fork": children(ssh, ssh_session),
        },
        files={"conf": SSHD},
        prepare=prepare_sshd,
        notes={"proxies": CHILD},
    ),
    Program(
        "vsftpd",
        7310,
        ("vsftpd", "{dir}/conf"),
        {
            "serves": serves(ftp(), linux=1),
            "TLS": serves(FTP_TLS, linux=1),
            "fork": children(ftp(), held("<220 "), linux=1),
        },
        files={"conf": VSFTPD},
        prepare=prepare_ftp,
        sample=True,
    ),
    Program(
        "rsync daemon",
        7330,
        ("rsync", "--daemon", "--no-detach", "--config={dir}/conf"),
        {
            "serves": serves(rsync),
            "fork": children(rsync_list, held("<@RSYNCD: ")),
        },
        files={"conf": RSYNC},
        prepare=prepare_rsync,
    ),
    Program(
        "git daemon",
        7340,
        ("git", "daemon", "--base-path={dir}", "--export-all", "--port={port}", "--reuseaddr"),
        {
            "serves": serves(git),
            "fork": children(git, held()),
        },
        prepare=prepare_git,
        env={
            "GIT_CONFIG_COUNT": "1",
            "GIT_CONFIG_KEY_0": "safe.directory",
            "GIT_CONFIG_VALUE_0": "*",
        },
    ),
    Program(
        "inetd",
        7350,
        ("inetd", "-d", "{dir}/conf"),
        {
            "serves": serves(talk(">hello", "<hello")),
            "fork": children(talk(">hello", "<hello"), held6),
        },
        files={"conf": INETD},
        families=(6,),
    ),
    Program(
        "unbound",
        7360,
        ("unbound", "-d", "-c", "{dir}/conf"),
        {
            "serves": serves(dig()),
            "proxies": proxies(dig("who.lab", '"client"')),
            "TLS": serves(dig(*("hello.own", '"hello"', "+tls"), port="{tls}")),
            "threads": threads(dig(), 3),
            "reload": reload(dig(), signal.SIGHUP),
        },
        files={"conf": UNBOUND},
        prepare=prepare_unbound,
        workers=1,
    ),
    Program(
        "bind9",
        7500,
        ("named", "-f", "-n", "2", "-c", "{dir}/conf"),
        {
            "serves": serves(dig()),
            "threads": threads(dig(), 3),
            "reload": reload(dig(), signal.SIGHUP),
        },
        files={"conf": NAMED, "zone": ZONE},
    ),
    Program(
        "dovecot",
        7370,
        ("dovecot", "-F", "-c", "{dir}/conf"),
        {
            "serves": left_to_linux(imap),
        },
        notes={
            "serves": "Linux: its first process waits at the listener until a client comes, and"
            " leaves accept() to a child, which gets the connection; import_environment in its"
            " configuration has to name LD_PRELOAD and STEELYARD_RUN"
        },
        files={"conf": DOVECOT},
    ),
    Program(
        "iperf3",
        7380,
        ("iperf3", "-s", "-p", "{port}"),
        {"serves": serves(both(IPERF, IPERF_BACK))},
    ),
    Program(
        "openssl s_server",
        7390,
        (
            "openssl",
            "s_server",
            "-accept",
            "{port}",
            "-cert",
            "{cert}",
            "-key",
            "{key}",
            "-www",
            "-quiet",
        ),
        {"TLS": serves(status)},
        sample=True,
    ),
)
