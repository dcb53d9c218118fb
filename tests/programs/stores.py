# SPDX-License-Identifier: Apache-2.0
"""Databases, caches and queues."""

import contextlib
import shutil
import signal
import subprocess
from pathlib import Path

from tests.lab.clients import connect, receive_exactly
from tests.lab.process import run
from tests.lab.servers import wait_listening
from tests.programs.asks import both, command, talk
from tests.programs.checks import (
    children,
    opens,
    proxies,
    reload,
    serves,
    threads,
)
from tests.programs.program import Program

PING = talk(">*1\r\n$4\r\nPING\r\n", "<+PONG\r\n")
REDIS = command("redis-cli", "-h", "{address}", "-p", "{port}", "echo", "hello", answer="hello")
REDIS_TLS = command(
    "redis-cli",
    "-h",
    "{address}",
    "-p",
    "{tls}",
    "--tls",
    "--cacert",
    "{cert}",
    "echo",
    "hello",
    answer="hello",
)


def redis(place, *words):
    return place.ask(["redis-cli", "-h", place.host.v4, "-p", place.program.port, *words]).strip()


def replicates(place):
    """From a server on Linux's TCP."""
    place.start_helper(
        "primary",
        [
            "redis-server",
            "--port",
            7290,
            "--save",
            "",
            "--protected-mode",
            "no",
            "--dir",
            place.dir,
            "--repl-diskless-sync-delay",
            "0",
        ],
    )
    wait_listening(place.client.ns, 7290)
    place.ask(["redis-cli", "-p", 7290, "set", "key", "replicated"])
    redis(place, "replicaof", place.client.v4, 7290)
    place.wait(lambda: redis(place, "get", "key") == "replicated", "it has what the primary has")
    redis(place, "replicaof", "no", "one")


def saves(place):
    """BGSAVE forks while clients are served; the parent keeps their connections."""
    with place.over_stack(), connect(place.client, place.host.v4, place.program.port) as one:
        one.sendall(b"*1\r\n$6\r\nBGSAVE\r\n")
        assert receive_exactly(one, 26) == b"+Background saving started"
        one.sendall(b"*1\r\n$4\r\nPING\r\n")
        assert receive_exactly(one, 9) == b"\r\n+PONG\r\n"
        place.wait(lambda: (place.dir / "dump.rdb").exists(), "the child has saved")


def user(name):
    return ("runuser", "-u", name, "--")


def postgres_binary():
    (binary,) = sorted(Path("/usr/lib/postgresql").glob("*/bin"))[-1:]
    return binary


def make_cluster(folder):
    folder.mkdir()
    shutil.chown(folder, "postgres", "postgres")
    run([*user("postgres"), postgres_binary() / "initdb", "-D", folder, "-A", "trust", "-N"])
    (folder / "pg_hba.conf").write_text("host all all all trust\nlocal all all trust\n")


def own_key(place, owner):
    for name in ("cert", "key"):
        copy = place.dir / name
        shutil.copy(getattr(place, name), copy)
        shutil.chown(copy, owner, owner)
        copy.chmod(0o600)


def prepare_postgres(place):
    make_cluster(place.dir / "data")
    own_key(place, "postgres")


def psql(port="{port}", mode="disable", statement="select 'hello'", answer="hello"):
    text = f"host={{address}} port={port} user=postgres sslmode={mode} sslrootcert={{cert}}"
    return command("psql", "-Atc", statement, text, answer=answer)


PGBENCH = command(
    "pgbench",
    "-h",
    "{address}",
    "-p",
    "{port}",
    "-U",
    "postgres",
    "-n",
    "-f",
    "{dir}/script",
    "-c",
    "8",
    "-t",
    "10",
    "postgres",
    find="failed transactions: 0",
)


@contextlib.contextmanager
def postgres_session(place):
    text = f"host={place.host.v4} port={place.program.port} user=postgres sslmode=disable"
    argv = place.client.ns.command(["psql", "-Atq", text])
    one = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with one:
        one.stdin.write("select 'here';\n")
        one.stdin.flush()
        assert one.stdout.readline() == "here\n"
        yield
        one.stdin.close()


def prepare_bouncer(place):
    """A PostgreSQL on Linux's TCP behind it."""
    make_cluster(place.dir / "data")
    binary = postgres_binary() / "postgres"
    options = [
        "-c",
        "listen_addresses=*",
        "-c",
        f"unix_socket_directories={place.dir}",
        "-c",
        "fsync=off",
    ]
    place.start_helper(
        "postgres", [*user("postgres"), binary, "-D", place.dir / "data", "-p", 7251, *options]
    )
    wait_listening(place.client.ns, 7251)
    (place.dir / "users").write_text('"postgres" ""\n')


BOUNCER = """\
[databases]
postgres = host={peer} port=7251
[pgbouncer]
listen_addr = *
listen_port = {port}
auth_type = trust
auth_file = {dir}/users
admin_users = postgres
unix_socket_dir =
client_tls_sslmode = allow
client_tls_cert_file = {cert}
client_tls_key_file = {key}
pool_mode = transaction
"""


def prepare_mariadb(place):
    folder = place.dir / "data"
    folder.mkdir()
    shutil.chown(folder, "mysql", "mysql")
    run(
        [
            "mariadb-install-db",
            "--no-defaults",
            "--user=mysql",
            f"--datadir={folder}",
            "--skip-test-db",
            "--auth-root-authentication-method=normal",
        ],
        env={"TMPDIR": str(place.dir)},
    )
    (place.dir / "init").write_text("create user 'test'@'%' identified by 'secret';\n")
    own_key(place, "mysql")


def mariadb(*words, statement="select 'hello'", answer="hello"):
    return command(
        "mariadb",
        "--no-defaults",
        "-h",
        "{address}",
        "-P",
        "{port}",
        "-u",
        "test",
        "-psecret",
        *words,
        "-BNe",
        statement,
        answer=answer,
    )


MARIADB_TLS = mariadb(
    "--ssl",
    "--ssl-ca={cert}",
    statement="show status like 'Ssl_version'",
    answer="Ssl_version\tTLSv1.3",
)
MEMCACHED = talk(
    ">set key 0 60 5\r\nhello\r\n",
    "<STORED\r\n",
    ">get key\r\n",
    "<VALUE key 0 5\r\nhello\r\nEND\r\n",
)

MOSQUITTO = """\
listener {port}
allow_anonymous true
listener {tls}
allow_anonymous true
certfile {cert}
keyfile {key}
user mosquitto
connection bridge
address {peer}:7291
topic bridged both
restart_timeout 1
"""


def retained(*words, port="{port}"):
    """A retained message, received by another client."""
    at = ["-h", "{address}", "-p", port, *words]
    put = command("mosquitto_pub", *at, "-t", "topic", "-r", "-q", "1", "-m", "hello")
    get = command("mosquitto_sub", *at, "-t", "topic", "-C", "1", "-W", "60", answer="hello")
    return both(put, get)


def prepare_mosquitto(place):
    (place.dir / "peer").write_text("listener 7291\nallow_anonymous true\n")
    place.start_helper("broker", ["mosquitto", "-c", place.dir / "peer"])
    wait_listening(place.client.ns, 7291)


def bridged(place, address):
    """Messages at the other broker have passed the bridge."""
    command(
        "mosquitto_pub",
        "-h",
        "{address}",
        "-p",
        "{port}",
        "-t",
        "bridged",
        "-r",
        "-q",
        "1",
        "-m",
        "hello",
    )(place, address)
    argv = ["mosquitto_sub", "-h", place.client.v4, "-p", 7291, "-t", "bridged", "-C", 1, "-W", 60]
    assert place.ask(argv).strip() == "hello"


SLAPD = """\
include /etc/ldap/schema/core.schema
pidfile {dir}/pid
modulepath /usr/lib/ldap
moduleload back_mdb
TLSCertificateFile {cert}
TLSCertificateKeyFile {key}
database mdb
suffix "dc=test"
rootdn "cn=admin,dc=test"
rootpw secret
directory {dir}/data
"""


def prepare_slapd(place):
    (place.dir / "data").mkdir()
    (place.dir / "entries").write_text(
        "dn: dc=test\nobjectClass: dcObject\nobjectClass: organization\no: hello\ndc: test\n"
    )
    run(["slapadd", "-f", place.dir / "conf", "-l", place.dir / "entries"])


def ldap(scheme="ldap", port="port"):
    def ask(place, address):
        at = place.at(address, getattr(place.program, port))
        argv = ["ldapsearch", "-x", "-LLL", "-H", f"{scheme}://{at}", "-b", "dc=test", "o"]
        assert "o: hello" in place.ask(argv, env={"LDAPTLS_CACERT": str(place.cert)})

    return ask


PROGRAMS = (
    Program(
        "redis",
        7200,
        (
            "redis-server",
            "--port",
            "{port}",
            "--tls-port",
            "{tls}",
            "--tls-cert-file",
            "{cert}",
            "--tls-key-file",
            "{key}",
            "--tls-ca-cert-file",
            "{cert}",
            "--tls-auth-clients",
            "no",
            "--protected-mode",
            "no",
            "--save",
            "",
            "--dir",
            "{dir}",
            "--io-threads",
            "2",
        ),
        {
            "serves": serves(REDIS),
            "proxies": opens(replicates),
            "TLS": serves(REDIS_TLS),
            "threads": threads(REDIS, 3),
            "fork": saves,
        },
        sample=True,
    ),
    Program(
        "memcached",
        7210,
        ("memcached", "-u", "memcache", "-t", "4", "-p", "{port}"),
        {"serves": serves(MEMCACHED), "threads": threads(MEMCACHED, 5)},
    ),
    Program(
        "PostgreSQL",
        7220,
        (
            *user("postgres"),
            postgres_binary() / "postgres",
            "-D",
            "{dir}/data",
            "-p",
            "{port}",
            "-c",
            "listen_addresses=*",
            "-c",
            "unix_socket_directories={dir}",
            "-c",
            "fsync=off",
            "-c",
            "ssl=on",
            "-c",
            "ssl_cert_file={dir}/cert",
            "-c",
            "ssl_key_file={dir}/key",
        ),
        {
            "serves": serves(both(psql(), PGBENCH)),
            "TLS": serves(psql(mode="verify-full")),
            "fork": children(psql(), postgres_session),
            "reload": reload(psql(), signal.SIGHUP),
        },
        files={"script": "select 1;\n"},
        prepare=prepare_postgres,
    ),
    Program(
        "pgbouncer",
        7240,
        (*user("postgres"), "pgbouncer", "{dir}/conf"),
        {
            "serves": serves(psql()),
            "proxies": opens(
                lambda place: psql(statement="select inet_server_port()", answer="7251")(
                    place, place.host.v4
                )
            ),
            "TLS": serves(psql(mode="verify-full")),
            "reload": reload(psql(), signal.SIGHUP),
        },
        files={"conf": BOUNCER},
        prepare=prepare_bouncer,
    ),
    Program(
        "MariaDB",
        7260,
        (
            "mariadbd",
            "--no-defaults",
            "--user=mysql",
            "--datadir={dir}/data",
            "--port={port}",
            "--bind-address=*",
            "--socket={dir}/socket",
            "--pid-file={dir}/pid",
            "--init-file={dir}/init",
            "--skip-name-resolve",
            "--ssl-cert={dir}/cert",
            "--ssl-key={dir}/key",
        ),
        {
            "serves": serves(mariadb()),
            "TLS": serves(MARIADB_TLS),
            "threads": threads(mariadb(), 5),
            "reload": reload(mariadb(), signal.SIGHUP),
        },
        prepare=prepare_mariadb,
        env={"TMPDIR": "{dir}"},
    ),
    Program(
        "mosquitto",
        7270,
        ("mosquitto", "-c", "{dir}/conf"),
        {
            "serves": serves(retained()),
            "proxies": proxies(bridged, opened=0),
            "TLS": serves(retained("--cafile", "{cert}", port="{tls}")),
            "reload": reload(retained(), signal.SIGHUP),
        },
        files={"conf": MOSQUITTO},
        prepare=prepare_mosquitto,
    ),
    Program(
        "OpenLDAP slapd",
        7280,
        ("slapd", "-d", "0", "-f", "{dir}/conf", "-h", "ldap://:{port}/ ldaps://:{tls}/"),
        {
            "serves": serves(ldap()),
            "TLS": serves(ldap("ldaps", "tls"), [4]),
            "threads": threads(ldap(), 4),
        },
        files={"conf": SLAPD},
        prepare=prepare_slapd,
    ),
    Program(
        "beanstalkd",
        7292,
        ("beanstalkd", "-l", "::", "-p", "{port}"),
        {"serves": serves(talk(">put 1 0 60 5\r\nhello\r\n", "<INSERTED "))},
    ),
)
