"""A systemd of its own: process 1 of new name spaces, over this machine's files but unable to change them.

The root is an overlay whose changes go into memory. Of the machine's units it sees none: only the few targets
that every service stands on. Its cgroups are below ones that are made for it, and its loopback is its own.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import secrets
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.servers import until

ROOT = Path(__file__).resolve().parents[2]
CGROUPS = Path("/sys/fs/cgroup")
PROGRAM = Path("/lib/systemd/systemd")
LIFE_S = 120
COMMAND_S = 60
TARGETS = ("sysinit", "basic", "network", "shutdown", "multi-user", "sockets", "timers", "paths")

SPACE = r"""
set -e
mount -t tmpfs tmpfs "$SPACE"; mkdir "$SPACE/up" "$SPACE/work" "$SPACE/root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$SPACE/up,workdir=$SPACE/work" "$SPACE/root"
cd "$SPACE/root"
mount -t proc proc proc
mount --bind proc/sys proc/sys; mount -o remount,bind,ro proc/sys
mount --rbind /sys sys; mount --rbind /dev dev
mount -t tmpfs -o mode=755 tmpfs run; mount -t tmpfs -o mode=1777 tmpfs tmp
mkdir -p "./$CHECKOUT"; mount --bind "$CHECKOUT" "./$CHECKOUT"; mount -o remount,bind,ro "./$CHECKOUT"
mount -t tmpfs tmpfs sys/fs/cgroup
for controller in $CONTROLLERS; do
    mkdir "sys/fs/cgroup/$controller"
    case $controller in
        systemd) mount -t cgroup -o none,name=systemd cgroup sys/fs/cgroup/systemd ;;
        unified) mount -t cgroup2 cgroup2 sys/fs/cgroup/unified ;;
        .) mount -t cgroup2 cgroup2 sys/fs/cgroup ;;
        *) mount -t cgroup -o "$controller" cgroup "sys/fs/cgroup/$controller" ;;
    esac
done
mount -t tmpfs tmpfs usr/lib/systemd/system
for target in $TARGETS; do printf '[Unit]\nAllowIsolate=yes\n' > "usr/lib/systemd/system/$target.target"; done
mount -t tmpfs tmpfs etc/systemd/system; mount -t tmpfs tmpfs usr/lib/systemd/system-generators
mount --bind "$CONSOLE" dev/console
mkdir -p old; pivot_root . old; umount -l old
exec env -i container=test PATH=/usr/sbin:/usr/bin:/sbin:/bin \
    /lib/systemd/systemd --system --unit=multi-user.target --log-target=console --show-status=0
"""


@dataclass(frozen=True)
class Space:
    """The running systemd: its process here, and what it has said."""

    pid: int
    log: Path

    def run(self, *command: str, check: bool = True, **variables: str) -> subprocess.CompletedProcess[str]:
        """Run a command as root inside."""
        done = subprocess.run(
            ["nsenter", "-t", str(self.pid), "-a", *command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_S,
            cwd="/",
            env={"PATH": "/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "SYSTEMD_PAGER": "", **variables},
            check=False,
        )
        assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}\n{self.said()}"
        return done

    def said(self) -> str:
        """Its console, without colours."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.log.read_text(errors="replace"))


def missing() -> str:
    """Why there can be none here; empty when there can."""
    if os.geteuid() != 0:
        return "this machine's user is not root, who alone can make these name spaces"
    if not PROGRAM.exists():
        return "this machine has no systemd: apt-get install systemd"
    if not os.access(CGROUPS, os.W_OK):
        return "this machine's cgroup file system may not be written"
    gone = [name for name in ("unshare", "nsenter", "pivot_root") if shutil.which(name) is None]
    return f"this machine has no {gone[0]} (util-linux)" if gone else ""


@contextlib.contextmanager
def space() -> Iterator[Space]:
    """Start it; all its processes end with it, and its cgroups are removed. It lives two minutes at most."""
    folder = Path(tempfile.mkdtemp(prefix="space-", dir="/tmp"))
    name = f"clusterwatt-test-{secrets.token_hex(4)}"
    cgroups = dict(_cgroups(name))
    terminal, console = pty.openpty()
    log = folder / "console"
    try:
        for cgroup in cgroups.values():
            cgroup.mkdir()
        (folder / "mount").mkdir()
        join = "".join(f"echo $$ > '{cgroup}/cgroup.procs'\n" for cgroup in cgroups.values())
        script = (
            f"set -e\n{join}exec unshare -C -m -n -p -f -u -i --kill-child --propagation private "
            f"sh -c '{SPACE.replace(chr(39), chr(39) + chr(92) + chr(39) + chr(39))}'\n"
        )
        with (folder / "out").open("wb") as out:
            process = subprocess.Popen(
                ["sh", "-c", script],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={
                    "PATH": os.environ["PATH"],
                    "SPACE": str(folder / "mount"),
                    "CHECKOUT": str(ROOT),
                    "CONSOLE": os.ttyname(console),
                    "CONTROLLERS": " ".join(cgroups),
                    "TARGETS": " ".join(TARGETS),
                },
            )
        killer = threading.Timer(LIFE_S, process.kill)
        killer.start()
        threading.Thread(target=_copy, args=(terminal, log), daemon=True).start()
        try:
            pid = until(lambda: _child(process, folder / "out"), 20, "systemd is process 1 of its space")
            inside = Space(pid, log)
            until(
                lambda: (
                    inside.run("systemctl", "is-active", "multi-user.target", check=False).returncode == 0
                ),
                20,
                "its target is reached",
            )
            yield inside
        finally:
            killer.cancel()
            process.kill()  # unshare takes process 1 with it, and that all others
            process.wait()
    finally:
        for cgroup in cgroups.values():
            _remove(cgroup)
        for descriptor in (terminal, console):
            with contextlib.suppress(OSError):
                os.close(descriptor)
        shutil.rmtree(folder, ignore_errors=True)


def _cgroups(name: str) -> Iterator[tuple[str, Path]]:
    """A new cgroup below that of this process, in each hierarchy; by the folder where it is mounted."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        folder = controllers.removeprefix("name=").split(",")[0] or (
            "unified" if (CGROUPS / "unified").is_dir() else "."
        )
        if folder != "cpuset" and (CGROUPS / folder / "cgroup.procs").exists():
            yield folder, CGROUPS / folder / path.lstrip("/") / name


def _child(process: subprocess.Popen[bytes], out: Path) -> int | None:
    assert process.poll() is None, out.read_text()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    if children and Path(f"/proc/{children[0]}/comm").read_text().strip() == "systemd":
        return int(children[0])
    return None


def _copy(terminal: int, log: Path) -> None:
    with log.open("wb", buffering=0) as file, contextlib.suppress(OSError):
        while data := os.read(terminal, 65_536):
            file.write(data)


def _remove(cgroup: Path) -> None:
    end_s = time.monotonic() + 10
    while cgroup.exists() and time.monotonic() < end_s:
        for folder, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        time.sleep(0.02)


def environment(inside: Space) -> None:
    """An environment of Python at /opt/clusterwatt with the packages of the one that runs the tests."""
    packages = next(Path(sys.prefix).glob("lib/python*/site-packages"))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    # The interpreter may lie in a home folder that is closed to others; it is opened in the overlay only. The
    # packages may lie below /tmp, of which the service has one of its own: they are mounted elsewhere.
    closed = " ".join(f"'{folder}'" for folder in Path(sys.base_prefix).parents)
    starter = (
        r"#!/opt/clusterwatt/bin/python\nimport sys\nfrom clusterwatt.cli import main\nsys.exit(main())\n"
    )
    script = f"""
set -e
chmod a+rx {closed}
'{sys.executable}' -m venv --without-pip /opt/clusterwatt
cd /opt/clusterwatt
mkdir -p /opt/packages /opt/agent
mount --bind '{packages}' /opt/packages
mount --bind '{ROOT / "agent"}' /opt/agent
printf '%s\\n' /opt/packages /opt/agent > lib/{version}/site-packages/tests.pth
printf '{starter}' > bin/clusterwatt
chmod 755 bin/clusterwatt
"""
    inside.run("sh", "-c", script)
