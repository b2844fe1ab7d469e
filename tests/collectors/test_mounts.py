"""The table of mounts: escapes, hidden mounts, whose view it is."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from clusterwatt.collectors.mounts import Mount, mounts_of_host, on_top, parse
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.faulty import refuse_open
from tests.machines import capture, put


def points(mounts: list[Mount]) -> list[str]:
    return [mount.mountpoint for mount in mounts]


def test_g42_octal_escapes_are_decoded() -> None:
    space, tab = parse(
        rb"""40 28 8:16 / /mnt/my\040data\134x rw,relatime shared:2 - ext4 /dev/sdb rw
41 28 8:32 / /mnt/tab\011nl\012h\043 rw,relatime shared:3 - ext4 /dev/sdc rw
"""
    )
    assert space.mountpoint == r"/mnt/my data\x"
    assert tab.mountpoint == "/mnt/tab\tnl\nh#"


def test_all_fields_of_a_line() -> None:
    line = rb"41 28 0:46 /a\040b /data rw,nosuid shared:3 master:1 - nfs4 nas:/a\040b rw,vers=4.2"
    (mount,) = parse(line)
    assert mount == Mount(
        id="41",
        device="0:46",
        root="/a b",
        mountpoint="/data",
        fstype="nfs4",
        source="nas:/a b",
        readonly=False,
        options="rw,vers=4.2",
    )


def test_a_table_that_has_not_changed_is_read_and_not_taken_apart_again(tmp_path: Path) -> None:
    put(tmp_path, "proc/1/mountinfo", "41 28 0:46 / /data rw - nfs4 nas:/ rw\n")
    files = Files(tmp_path, FakeClock())
    (before,), (after,) = mounts_of_host(files), mounts_of_host(files)
    assert after is before
    put(tmp_path, "proc/1/mountinfo", "41 28 0:46 / /data ro - nfs4 nas:/ rw\n")
    (changed,) = mounts_of_host(files)
    assert changed.readonly


@pytest.mark.parametrize(
    ("options", "super_options", "readonly"),
    [
        (b"rw,relatime", b"rw", False),
        (b"ro,relatime", b"rw", True),  # this mount only
        (b"rw,relatime", b"ro,data=ordered", True),  # the kernel, after an error
        (b"rw,relatime", b"rw,errors=remount-ro", False),
    ],
)
def test_readonly_is_said_in_either_list_of_options(
    options: bytes, super_options: bytes, readonly: bool
) -> None:
    (mount,) = parse(b"28 1 8:1 / / " + options + b" shared:1 - ext4 /dev/sda1 " + super_options)
    assert mount.readonly is readonly


def test_a_source_without_a_name_and_lines_that_are_none() -> None:
    (mount,) = parse(b"1 2 0:3 / /x rw -  tmpfs  rw\n\nnonsense\n1 2 3 - ext4 a rw\n")
    assert (mount.fstype, mount.source) == ("tmpfs", "")


def test_a_name_that_is_not_utf8_keeps_its_bytes_for_calls_and_loses_them_in_the_label() -> None:
    (mount,) = parse(b"1 2 0:3 / /x\xff rw - tmpfs t rw")
    assert os.fsencode(mount.mountpoint) == b"/x\xff"
    assert mount.label == "/x\N{REPLACEMENT CHARACTER}"


def test_of_two_mounts_on_one_point_the_later_is_seen() -> None:
    below, above = parse(b"1 0 0:3 / /mnt rw - autofs map rw\n2 1 0:9 / /mnt rw - nfs4 nas:/ rw")
    assert on_top([below, above]) == {"/mnt": above}


def test_the_view_of_the_first_process_comes_first(tmp_path: Path) -> None:
    put(tmp_path, "/proc/1/mountinfo", "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    put(tmp_path, "/proc/self/mountinfo", "99 1 0:8 / / rw - overlay overlay rw\n")
    assert points(mounts_of_host(Files(tmp_path, FakeClock()))) == ["/"]


def test_our_own_view_below_a_root_is_stripped(tmp_path: Path) -> None:
    """A container without the host's process table, with the host's file system below the root."""
    root = str(tmp_path)
    put(
        tmp_path,
        "/proc/self/mountinfo",
        f"""90 1 0:8 / / rw - overlay overlay rw
91 90 8:1 / {root} ro - ext4 /dev/sda1 rw
92 91 8:2 / {root}/data rw - xfs /dev/sda2 rw
93 90 8:3 / {root}-other rw - xfs /dev/sda3 rw
94 90 8:1 /etc/hosts /etc/hosts rw - ext4 /dev/sda1 rw
""",
    )
    assert points(mounts_of_host(Files(tmp_path, FakeClock()))) == ["/", "/data"]


def test_a_hidden_first_process_leaves_our_own_view(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "/proc/self/mountinfo", "28 1 8:1 / / rw - ext4 /dev/sda1 rw\n")
    refuse_open(monkeypatch, "/proc/1/", errno.EPERM)
    assert points(mounts_of_host(Files(tmp_path, FakeClock()))) == ["/"]


def test_capture_of_node_exporter() -> None:
    table = capture("procfs/node-exporter/1/mountinfo").read_bytes()
    mounts = on_top(parse(table))
    assert len(parse(table)) == len(table.splitlines())
    assert mounts["/boot"].fstype == "ext2"
    assert any("[vsanDatastore] bafb9e5a" in path for path in mounts)
    assert any("[vsanDatastore]\tbafb9e5a" in path for path in mounts)
