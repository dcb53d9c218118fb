# SPDX-License-Identifier: Apache-2.0
"""deploy/packages lists all that a machine needs to run the programs without building them."""

import re
from pathlib import Path

import pytest

from tests.lab import Lab
from tests.lab.lab import ROOT
from tests.lab.process import run
from tests.lab.steelyard import FORWARDER, STEELYARD, memory_options

DRIVERS = Path("/usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0")

pytestmark = [
    # the sanitized build is linked otherwise, so the test would never run with it
    pytest.mark.both_builds,
    pytest.mark.skipif(
        "asan" in str(FORWARDER) or not DRIVERS.exists(), reason="a plain build on Debian 12, amd64"
    ),
]


def listed():
    lines = (ROOT / "deploy/packages").read_text().splitlines()
    return {word for line in lines for word in line.partition("#")[0].split()}


def owner(path):
    """Returns the package of a file, which may be registered by its name before the /usr merge."""
    real = str(Path(path).resolve())
    for name in (real, real.removeprefix("/usr")):
        done = run(["dpkg", "-S", name], check=False)
        if not done.returncode:
            return done.stdout.partition(":")[0]
    raise AssertionError(f"{path} is of no package")


def needed(program):
    """Returns the packages of the libraries that the program itself names."""
    names = re.findall(r"\(NEEDED\).*\[(.*)\]", run(["readelf", "-d", program]))
    if not names:
        return set()  # ldd reports nothing for it
    where = dict(re.findall(r"(\S+) => (/\S+)", run(["ldd", program])))
    return {owner(where[name]) for name in names if name in where}


def with_dependencies(packages):
    every, more = set(), set(packages)
    while more:
        every |= more
        form = "${Depends},${Pre-Depends}\n"
        text = run(["dpkg-query", "-W", "-f", form, *sorted(more)])
        more = set(re.findall(r"(?:^|[,|])\s*([a-z0-9][a-z0-9.+-]*)", text, re.M)) - every
        more = {one for one in more if not run(["dpkg-query", "-W", one], check=False).returncode}
    return every


def test_libraries_of_the_programs_are_listed():
    assert needed(FORWARDER) - {"libc6"} == listed()
    assert needed(STEELYARD) <= {"libc6"}


def test_forwarder_loads_only_listed_packages(tmp_path):
    """On the kernel's interfaces it loads only listed packages and their dependencies, none of this
    machine's other DPDK drivers."""
    with Lab() as lab:
        place = ["--state", tmp_path / "state", "--socket", tmp_path / "forwarder.sock"]
        ports = [word for port in lab.network.ports for word in ("--port", port)]
        argv = [FORWARDER, "--instance", lab.id, *place, *ports, "--log", "info"]
        argv += ["--sessions", "1024", *memory_options(lab)]
        forwarder = lab.start("forwarder", "steelyard-bare", argv)
        forwarder.wait_for(r"\bready\b")
        maps = Path(f"/proc/{forwarder.pid}/maps").read_text()
        files = set(re.findall(r" (/\S+\.so\S*)$", maps, re.M))
        assert files
        allowed = with_dependencies(listed())
        assert {owner(file) for file in files} <= allowed
        forwarder.stop()
        run(lab["forwarder"].ns.command([FORWARDER, "--instance", lab.id, *place, "--cleanup"]))


# Each example, and one of the six scenarios: they differ in one file.
EXAMPLES = {
    "echo": ("echo.c",),
    "ranks": ("ranks.c",),
    "length": ("priority/length.c", "priority/server.c"),
}


def test_applications_build_from_the_installed_files(tmp_path):
    """By pkg-config, the header and the shared object, whose packages are listed as well."""
    run(["make", "-C", ROOT, "install", f"DESTDIR={tmp_path}"])
    usr = tmp_path / "usr/local"
    environment = {
        "PKG_CONFIG_PATH": str(usr / "lib/pkgconfig"),
        "PKG_CONFIG_SYSROOT_DIR": str(tmp_path),
    }
    words = run(["pkg-config", "--cflags", "--libs", "steelyard-tcp"], env=environment).split()
    examples = usr / "share/doc/steelyard/examples"
    strict = ["-Wall", "-Werror", "-std=gnu17", "-pthread"]
    for name, sources in EXAMPLES.items():
        files = [examples / source for source in sources]
        run(["cc", *strict, "-o", tmp_path / name, *files, *words])
    library = usr / "lib/libsteelyard-tcp.so.0"
    assert needed(library) <= with_dependencies(listed())
    heading = {"LD_LIBRARY_PATH": str(usr / "lib")}
    assert "=> not found" not in run(["ldd", tmp_path / "echo"], env=heading)
    for page in (ROOT / "docs/man").iterdir():
        assert (usr / f"share/man/man{page.suffix[1:]}" / page.name).exists()
    shown = set(re.findall(r" T (sy_tcp_\w+)@@", run(["nm", "-D", library])))
    header = re.sub(r"/\*.*?\*/", "", (usr / "include/sy_tcp.h").read_text(), flags=re.S)
    declared = set(re.findall(r"\b(sy_tcp_\w+)\(", header))
    pages = "".join(page.read_text() for page in (usr / "share/man/man3").iterdir())
    assert shown == declared
    assert all(name in pages for name in shown)
    run(["make", "-C", ROOT, "uninstall", f"DESTDIR={tmp_path}"])
    left = [path for path in tmp_path.rglob("*") if path.is_file() or path.is_symlink()]
    assert {path.name for path in left} == {*EXAMPLES, "steelyard-forwarder"}  # the last: options
