"""Programs that the tests run, out of Debian packages: downloaded and unpacked, never installed.

`apt-get` keeps a state of its own below `.cache/debian`, so nothing here needs root, changes the machine or
starts a service. A program that is on PATH already, and starts, is used as it is.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

CACHE = Path(__file__).resolve().parents[2] / ".cache" / "debian"
BIN = CACHE / "bin"
APT_GET = (
    "apt-get",
    "--quiet=2",
    f"-oDir::State::lists={CACHE}/lists",
    f"-oDir::Cache={CACHE}/apt",
    "-oDir::State::status=/var/lib/dpkg/status",
)
LIBRARIES = (
    "lib/*-linux-gnu",
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/pulseaudio",
    "usr/lib/*-linux-gnu/slurm*",
    "usr/lib/*-linux-gnu/systemd",
)
FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig><dir>{root}/usr/share/fonts</dir><cachedir>{root}/var/cache/fontconfig</cachedir></fontconfig>
"""
TIMEOUT_S = 300
DOES_IT_START_S = 20


class Unavailable(Exception):
    """The program cannot be had here; the message says why, in one line."""


@dataclass(frozen=True)
class Program:
    """Where a program is: its Debian package, a pattern of its path in there, and its names on PATH."""

    package: str
    path: str
    names: tuple[str, ...]
    ask_version: str = "--version"


PROGRAMS: Mapping[str, Program] = {
    "promtool": Program("prometheus", "usr/bin/promtool", ("promtool",)),
    "prometheus": Program("prometheus", "usr/bin/prometheus", ("prometheus",)),
    "amtool": Program("prometheus-alertmanager", "usr/bin/amtool", ("amtool",)),
    "alertmanager": Program(
        "prometheus-alertmanager",
        "usr/bin/prometheus-alertmanager",
        ("prometheus-alertmanager", "alertmanager"),
    ),
    "node_exporter": Program(
        "prometheus-node-exporter",
        "usr/bin/prometheus-node-exporter",
        ("prometheus-node-exporter", "node_exporter"),
    ),
    "chromium": Program(
        "chromium", "usr/lib/chromium/chromium", ("chromium", "chromium-browser", "google-chrome")
    ),
    "ip": Program("iproute2", "**/bin/ip", ("ip",), "-V"),  # before /usr was merged: bin/ip
    "slurmctld": Program("slurm-wlm", "usr/sbin/slurmctld*", ("slurmctld",), "-V"),
    "slurmd": Program("slurm-wlm", "usr/sbin/slurmd*", ("slurmd",), "-V"),
    "munged": Program("slurm-wlm", "usr/sbin/munged", ("munged",), "-V"),
    "systemd-analyze": Program("systemd", "**/bin/systemd-analyze", ("systemd-analyze",)),
    "victoria-metrics": Program(
        "victoria-metrics", "usr/bin/victoria-metrics", ("victoria-metrics",), "-version"
    ),
}


def find(name: str) -> Path | None:
    """The program on PATH or in the cache; None when it has to be fetched first."""
    program = PROGRAMS[name]
    on_path = [Path(found) for known in program.names if (found := shutil.which(known))]
    return next((path for path in (*on_path, BIN / name) if _starts(path, program.ask_version)), None)


def fetch(name: str) -> Path:
    """The program, downloaded when it is not here yet. Raises Unavailable."""
    path = find(name)
    if path is None:
        package = PROGRAMS[name].package
        _unpack(package)
        for other, program in PROGRAMS.items():
            if program.package == package:
                _write_starter(other, program)
        path = find(name)
    if path is None:
        raise Unavailable(f"what Debian's package {PROGRAMS[name].package} holds does not start")
    return path


def _write_starter(name: str, program: Program) -> None:
    """A script in the cache's `bin` that starts the program with the libraries unpacked beside it."""
    root = CACHE / program.package
    found = next(root.glob(program.path), None)
    if found is None:
        raise Unavailable(f"{name} is not in Debian's package {program.package}")
    called = found.with_name(name)
    if not called.exists():  # Slurm's daemons go by the name that they are called with
        called.symlink_to(found.name)
    lines = ["#!/bin/sh"]
    libraries = [folder for pattern in LIBRARIES for folder in root.glob(pattern)]
    if libraries:
        lines.append(f"export LD_LIBRARY_PATH='{':'.join(str(folder) for folder in libraries)}'")
    if (root / "etc/fonts").exists():  # the machine has no fonts of its own; without any, pages show no text
        fonts = root / "fonts.conf"
        fonts.write_text(FONTS.format(root=root))
        lines.append(f"export FONTCONFIG_FILE='{fonts}'")
    lines.append(f"exec '{called}' \"$@\"")
    BIN.mkdir(exist_ok=True)
    starter = BIN / name
    starter.write_text("\n".join(lines) + "\n")
    starter.chmod(0o755)


def _starts(path: Path, ask_version: str) -> bool:
    """Whether it runs at all: Ubuntu's chromium is a script that asks for a snap instead."""
    try:
        done = subprocess.run(
            [path, ask_version],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=DOES_IT_START_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _unpack(package: str) -> None:
    """Fetch a package, and those that it needs and the machine lacks, into a folder of its own."""
    if shutil.which("apt-get") is None or shutil.which("dpkg") is None:
        raise Unavailable("no apt-get on this machine; put the program on PATH")
    for folder in (CACHE / "lists" / "partial", CACHE / "apt" / "archives" / "partial"):
        folder.mkdir(parents=True, exist_ok=True)
    _update()
    plan = _apt_get("--simulate", "--no-install-recommends", "install", package)
    needed = [line.split()[1] for line in plan.splitlines() if line.startswith("Inst ")] or [package]
    target, partial = CACHE / package, CACHE / f"{package}.partial"
    for leftover in (target, partial):
        shutil.rmtree(leftover, ignore_errors=True)
    downloads = partial / "downloads"
    downloads.mkdir(parents=True)
    _apt_get("download", *needed, folder=downloads)
    for archive in downloads.glob("*.deb"):
        _run(["dpkg", "--extract", str(archive), str(partial)], folder=CACHE)
    shutil.rmtree(downloads)
    partial.rename(target)


@functools.cache
def _update() -> None:
    _apt_get("update")


def _apt_get(*arguments: str, folder: Path = CACHE) -> str:
    return _run([*APT_GET, *arguments], folder)


def _run(command: list[str], folder: Path) -> str:
    """Standard output of a command. Raises Unavailable with the last line that it complained with."""
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            env=os.environ | {"LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise Unavailable(f"{' '.join(command[:1])} took longer than {TIMEOUT_S} s") from error
    if done.returncode != 0:
        complaint = (done.stderr.strip() or done.stdout.strip() or "no message").splitlines()[-1]
        raise Unavailable(f"{command[0]} failed: {complaint}")
    return done.stdout


def _fetched(name: str) -> bool:
    try:
        print(f"{name}: {fetch(name)}")
    except Unavailable as error:
        print(f"{name}: left out: {error}")
        return False
    return True


def main(names: Iterable[str]) -> int:
    """Fetch the named programs and print where they are."""
    had = [_fetched(name) for name in names]
    return 0 if all(had) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or PROGRAMS))
