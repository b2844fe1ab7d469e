"""The installer and the unit under a systemd of their own: what the agent may do, and what it may not."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.e2e import systemd
from tests.e2e.page import Page
from tests.e2e.servers import until
from tests.e2e.systemd import ROOT, Space

pytestmark = pytest.mark.e2e

DEPLOY = ROOT / "deploy" / "systemd"
CAPABILITIES = (1 << 2) | (1 << 19) | (1 << 34)  # DAC_READ_SEARCH, SYS_PTRACE, SYSLOG: linux/capability.h
ENVIRONMENT = """\
CLUSTERWATT_SIMULATE__PROFILE=h100
# What simulated GPUs use is kept apart from the node's ledger, and so is who holds them.
CLUSTERWATT_LEDGER__PATH=/var/lib/clusterwatt/simulated.db
CLUSTERWATT_DRIVER__RELEASE_FILE=/run/clusterwatt/simulated-release
CLUSTERWATT_LEDGER__COMMIT_SECONDS=1
"""
# What somebody could try who has taken over the agent, and what the agent needs; each line says yes or no.
PROBE = """\
try() { name=$1; shift; if "$@" >/dev/null 2>&1; then echo "$name yes"; else echo "$name no"; fi; }
try write_etc touch /etc/clusterwatt/x
try write_opt touch /opt/clusterwatt/x
try write_home touch /root/x
try replace_jobs mv /run/clusterwatt/jobs /run/clusterwatt/other
try open_device dd if="$(cat /opt/device)" of=/dev/null count=0
try make_namespace unshare --user true
try become_root setpriv --reuid 0 true
try write_sysctl sh -c 'echo 1 > /proc/sys/vm/drop_caches'
try read_environment_of_others cat /proc/1/environ
try write_cgroups sh -c 'for f in /sys/fs/cgroup /sys/fs/cgroup/*; do mkdir "$f/x" && exit 0; done; exit 1'
try read_cgroups sh -c 'find /sys/fs/cgroup -path "*/clusterwatt.*/cgroup.procs" -exec cat {} + | grep .'
try read_kernel_log dd if=/dev/kmsg of=/dev/null bs=8192 count=1
try write_kernel_log sh -c 'echo x > /dev/kmsg'
try write_state touch /var/lib/clusterwatt/x
try write_run touch /run/clusterwatt/x
try read_clock /opt/clusterwatt/bin/python -c 'import ctypes; b = ctypes.create_string_buffer(512)
raise SystemExit(ctypes.CDLL(None).adjtimex(b) < 0)'
"""


# A disk, where the machine itself lets root open one.
DEVICES = (
    "/dev/vda",
    "/dev/sda",
    "/dev/nvme0n1",
    "/dev/loop0",
    "/dev/loop-control",
    "/dev/fuse",
    "/dev/port",
)


@pytest.fixture(scope="module")
def inside() -> Iterator[Space]:
    """A systemd with the agent installed and started by the installer."""
    reason = systemd.missing()
    if reason:
        pytest.skip(reason)
    with systemd.space() as started:
        systemd.environment(started)
        started.run("mkdir", "-p", "/etc/clusterwatt")
        write_file(started, "/etc/clusterwatt/clusterwatt.env", ENVIRONMENT)
        installed(started)
        yield started


def installed(inside: Space) -> str:
    """Run the installer; the package is there already, so pip needs no index."""
    return inside.run(str(DEPLOY / "install.sh"), "--from", "clusterwatt", PIP_NO_INDEX="1").stdout


def write_file(inside: Space, path: str, text: str) -> None:
    write = "import sys; open(sys.argv[1], 'w').write(sys.argv[2])"
    inside.run("/opt/clusterwatt/bin/python", "-c", write, path, text)


def page(inside: Space) -> Page:
    """The agent's page; none is served while a snapshot is late."""
    read = "import urllib.request as u; print(u.urlopen('http://127.0.0.1:10777/metrics').read().decode())"

    def answer() -> str:
        return inside.run("/opt/clusterwatt/bin/python", "-c", read, check=False).stdout

    return Page(until(answer, 20, "the page is served"))


def opens(inside: Space, device: str) -> bool:
    """Whether root can open a device, outside the unit."""
    return inside.run("dd", f"if={device}", "of=/dev/null", "count=0", check=False).returncode == 0


def command(inside: Space, *arguments: str) -> str:
    """One of our commands, run by root."""
    return inside.run("clusterwatt", *arguments).stdout


def main_pid(inside: Space) -> str:
    return inside.run("systemctl", "show", "--value", "--property=MainPID", "clusterwatt").stdout.strip()


def test_it_runs_as_its_own_user_with_three_capabilities(inside: Space) -> None:
    assert inside.run("systemctl", "is-active", "clusterwatt").stdout.strip() == "active"
    lines = inside.run("cat", f"/proc/{main_pid(inside)}/status").stdout.splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    user = inside.run("id", "-u", "clusterwatt").stdout.strip()
    assert set(status["Uid"].split()) == {user}
    assert user != "0"
    for name in ("CapEff", "CapBnd", "CapAmb"):
        assert int(status[name], 16) == CAPABILITIES
    assert status["NoNewPrivs"] == "1"
    assert status["Seccomp"] == "2"


def test_it_tells_systemd_that_it_is_alive(inside: Space) -> None:
    def told_us(name: str) -> int:
        shown = inside.run("systemctl", "show", "--value", f"--property={name}", "clusterwatt")
        return int(shown.stdout.strip())

    first = told_us("WatchdogTimestampMonotonic")
    assert first > 0
    until(lambda: told_us("WatchdogTimestampMonotonic") > first, 20, "another word of life")
    assert told_us("NRestarts") == 0


def test_no_default_collector_is_refused_anything(inside: Space) -> None:
    until(lambda: page(inside).value("clusterwatt_gpus_visible") == 8, 20, "the simulated GPUs are there")
    found = page(inside)
    refused = [labels for labels, errors in found.series("clusterwatt_collector_errors_total") if errors > 0]
    assert not [labels for labels in refused if labels.get("reason") == "permission"], refused


def test_the_ledger_is_written_in_the_systems_folder(inside: Space) -> None:
    def owner() -> str:
        return inside.run(
            "stat", "--format=%U %a", "/var/lib/clusterwatt/simulated.db", check=False
        ).stdout.strip()

    user, mode = until(owner, 20, "the ledger is there").split()
    assert user == "clusterwatt"
    assert mode.endswith("0")
    assert inside.run("stat", "--format=%a", "/var/lib/clusterwatt").stdout.strip() == "750"


def test_commands_of_root_reach_the_agent(inside: Space) -> None:
    command(inside, "maintenance", "on")
    until(lambda: page(inside).value("clusterwatt_node_maintenance") == 1, 20, "it is in maintenance")
    command(inside, "maintenance", "off")
    flag = ("--set", "driver.release_file=/run/clusterwatt/simulated-release")
    assert "no process of the agent has the driver open" in command(inside, "driver", "release", *flag)
    assert "reads the driver again" in command(inside, "driver", "resume", *flag)


def test_what_the_unit_allows(inside: Space) -> None:
    unit = re.sub(
        r"^(Type|NotifyAccess|ExecStart|ExecReload|Restart\w*|WatchdogSec|Timeout\w*)=.*\n",
        "",
        (DEPLOY / "clusterwatt.service").read_text(),
        flags=re.MULTILINE,
    )
    unit = unit.replace(
        "[Service]\n",
        "[Service]\nType=oneshot\nStandardOutput=file:/run/probe.out\nExecStart=/bin/sh /opt/probe\n",
    )
    write_file(inside, "/opt/probe", PROBE)
    write_file(inside, "/etc/systemd/system/probe.service", unit)
    device = next(name for name in DEVICES if opens(inside, name))
    write_file(inside, "/opt/device", device)
    inside.run("systemctl", "daemon-reload")
    inside.run("systemctl", "start", "probe.service")
    answers = dict(line.split() for line in inside.run("cat", "/run/probe.out").stdout.splitlines())
    allowed = {name for name, answer in answers.items() if answer == "yes"}
    assert allowed == {
        "read_environment_of_others",
        "read_kernel_log",
        "read_cgroups",
        "write_state",
        "write_run",
        "read_clock",
    }


def test_a_reload_is_taken_and_a_second_installation_changes_nothing(inside: Space) -> None:
    before = main_pid(inside)
    inside.run("systemctl", "reload", "clusterwatt")
    assert main_pid(inside) == before
    said = installed(inside)
    assert "written" not in said
    assert "kept: /etc/clusterwatt/clusterwatt.yaml" in said
    assert inside.run("systemctl", "is-active", "clusterwatt").stdout.strip() == "active"


def test_uninstall_leaves_the_ledger(inside: Space) -> None:
    inside.run(str(DEPLOY / "install.sh"), "uninstall")
    assert inside.run("systemctl", "is-active", "clusterwatt", check=False).returncode != 0
    left = inside.run(
        "sh", "-c", "ls -d /opt/clusterwatt /usr/local/bin/clusterwatt /run/clusterwatt", check=False
    )
    assert left.stdout == ""
    inside.run("test", "-e", "/var/lib/clusterwatt/simulated.db")
    inside.run("test", "-e", "/etc/clusterwatt/clusterwatt.yaml")

    def driver_host_ended() -> bool:
        return "driver.host" not in inside.run("sh", "-c", "cat /proc/[0-9]*/cmdline").stdout

    until(driver_host_ended, 20, "the process that has the driver open has ended by itself")
