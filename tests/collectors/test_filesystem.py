"""Space of mounts: which are asked, what is answered, and what happens when one never answers."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from clusterwatt.catalog import faults
from clusterwatt.collectors import filesystem
from clusterwatt.collectors.filesystem import FilesystemCollector
from clusterwatt.config.model import FilesystemCollector as Settings
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from clusterwatt.source import Account, Source
from clusterwatt.sysfs import Files
from tests.clocks import FakeClock
from tests.machines import ROOTS, machine, put

QUICK = Settings(timeout_seconds=0.02)

StatVfs = Callable[[str], os.statvfs_result]


def answer(
    blocks: int = 1000, free: int = 400, available: int = 300, files: int = 100, files_free: int = 60
) -> os.statvfs_result:
    return cast(
        "os.statvfs_result",
        SimpleNamespace(
            f_bsize=1 << 20,
            f_frsize=4096,
            f_blocks=blocks,
            f_bfree=free,
            f_bavail=available,
            f_files=files,
            f_ffree=files_free,
        ),
    )


class Storage:
    """A statvfs whose mounts answer, fail, or hang until they are let go."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.errors: dict[str, int] = {}
        self.hung: dict[str, threading.Event] = {}
        self.came_back = threading.Semaphore(0)

    def hang(self, path: str) -> threading.Event:
        return self.hung.setdefault(path, threading.Event())

    def __call__(self, path: str) -> os.statvfs_result:
        self.asked.append(path)
        if path in self.hung:
            self.hung[path].wait()
            self.came_back.release()
        if path in self.errors:
            raise OSError(self.errors[path], os.strerror(self.errors[path]))
        return answer()


@pytest.fixture
def storage() -> Iterator[Storage]:
    made = Storage()
    yield made
    for event in made.hung.values():
        event.set()


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


def collector(
    files: Files, clock: FakeClock, statvfs: StatVfs = lambda _: answer(), settings: Settings = QUICK
) -> FilesystemCollector:
    return FilesystemCollector(files, settings, clock, statvfs, own_mountinfo=None)


def table(root: Path, *lines: str) -> None:
    put(root, "/proc/1/mountinfo", "".join(f"{line}\n" for line in lines))


def space(readings: list[Reading]) -> dict[str, Filesystem]:
    found = {r.mountpoint: r for r in readings if isinstance(r, Filesystem)}
    assert len(found) == sum(isinstance(r, Filesystem) for r in readings)
    return found


def probes(readings: list[Reading]) -> dict[str, FilesystemProbe]:
    return {r.mountpoint: r for r in readings if isinstance(r, FilesystemProbe)}


def failed(readings: list[Reading]) -> dict[str, str]:
    return {r.item: r.reason for r in readings if isinstance(r, Failure)}


ROOT = "28 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw"
DATA = "40 28 8:16 / /data rw,relatime shared:2 - xfs /dev/sdb rw"
SHARE = "41 28 0:50 / /share rw,relatime shared:3 - nfs4 nas:/share rw"
OTHER = "42 28 0:51 / /other rw,relatime shared:4 - nfs4 nas:/other rw"
NETWORK = Settings(timeout_seconds=0.02, network_mounts=("*",))


def test_space_is_in_bytes_and_entries(tmp_path: Path, clock: FakeClock) -> None:
    table(tmp_path, ROOT)
    readings = list(collector(Files(tmp_path, clock), clock).collect())
    assert readings == [
        FilesystemProbe(
            mountpoint="/",
            fstype="ext4",
            last_probe_timestamp_seconds=clock.wall_s(),
            probe_duration_seconds=0.0,
        ),
        Filesystem(
            mountpoint="/",
            fstype="ext4",
            size_bytes=4_096_000,
            available_bytes=1_228_800,
            free_bytes=1_638_400,
            files=100,
            files_free=60,
            readonly=0,
        ),
    ]


def test_a_file_system_without_a_size_or_entries_does_not_report_zero(
    tmp_path: Path, clock: FakeClock
) -> None:
    table(tmp_path, ROOT)
    no_entries = collector(Files(tmp_path, clock), clock, lambda _: answer(files=0, files_free=0))
    btrfs = space(list(no_entries.collect()))["/"]
    assert (btrfs.files, btrfs.files_free, btrfs.size_bytes) == (None, None, 4_096_000)
    no_size = collector(Files(tmp_path, clock), clock, lambda _: answer(blocks=0, free=0, available=0))
    ramfs = space(list(no_size.collect()))["/"]
    assert (ramfs.size_bytes, ramfs.available_bytes, ramfs.free_bytes) == (None, None, None)


def test_a_full_file_system_reports_zero(tmp_path: Path, clock: FakeClock) -> None:
    table(tmp_path, ROOT)
    full = collector(Files(tmp_path, clock), clock, lambda _: answer(free=50, available=0, files_free=0))
    (found,) = space(list(full.collect())).values()
    assert (found.available_bytes, found.files_free) == (0, 0)


@pytest.mark.parametrize(
    ("name", "network_mounts", "expected"),
    [
        # /scratch is /raid once more, /home a share, /snap an image, /var/lib/docker the containers' own
        ("h100-ib", (), {"/", "/boot/efi", "/run", "/dev/shm", "/raid"}),
        ("h100-ib", ("/home",), {"/", "/boot/efi", "/run", "/dev/shm", "/raid", "/home"}),
        ("roce-bond", (), {"/", "/run", "/dev/shm", "/scratch", "/run/user/1000"}),
        ("cloud-vm", (), {"/", "/run", "/dev/shm", "/data"}),
        ("cloud-vm", ("*",), {"/", "/run", "/dev/shm", "/data", "/mnt/bucket", "/opt/images"}),
        ("efa", (), {"/", "/run", "/dev/shm", "/opt/dlami/nvme"}),
        ("broken-ports", (), {"/", "/run", "/dev/shm", "/mnt/my data\\x"}),
        ("nfs-lustre", (), {"/", "/run", "/dev/shm"}),
        # /mnt/home2 is /home once more
        ("nfs-lustre", ("*",), {"/", "/run", "/dev/shm", "/home", "/datasets", "/lustre"}),
    ],
)
def test_mounts_of_a_machine_that_are_asked(
    name: str, network_mounts: tuple[str, ...], expected: set[str], storage: Storage, clock: FakeClock
) -> None:
    settings = Settings(network_mounts=network_mounts)
    readings = list(collector(machine(name), clock, storage, settings).collect())
    assert set(space(readings)) == set(probes(readings)) == expected
    root = str(ROOTS / name)
    assert sorted(storage.asked) == sorted(root if point == "/" else root + point for point in expected)


def test_g42_a_path_with_a_blank_is_asked_and_reported_by_its_real_name(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    table(
        tmp_path,
        r"40 28 8:16 / /mnt/my\040data\134x rw,relatime - ext4 /dev/sdb rw",
        r"41 28 8:32 / /mnt/tab\011nl\012h\043 rw - ext4 /dev/sdc rw",
    )
    readings = list(collector(Files(tmp_path, clock), clock, storage).collect())
    assert storage.asked == [f"{tmp_path}/mnt/my data\\x", f"{tmp_path}/mnt/tab\tnl\nh#"]
    assert set(space(readings)) == {"/mnt/my data\\x", "/mnt/tab\tnl\nh#"}


def test_without_a_root_the_path_is_the_mount_point(storage: Storage, clock: FakeClock) -> None:
    """On the machine itself: `/` stays `/`."""
    list(collector(Files("/", clock), clock, storage).collect())
    assert all(path.startswith("/") and not path.startswith("//") for path in storage.asked)


@pytest.mark.parametrize(
    ("point", "kept"),
    [
        ("/dev/shm", True),
        ("/dev/shm/x", False),
        ("/dev", False),
        ("/device", True),
        ("/proc", False),
        ("/processed", True),
        ("/sys/fs/x", False),
        ("/run/credentials/x", False),
        ("/run/netns", False),
        ("/run/containerd/io.containerd.grpc.v1.cri/sandboxes/1/shm", False),
        ("/run/containers/storage/overlay-containers/1/userdata/shm", False),
        ("/var/lib/docker", False),
        ("/var/lib/dockerdata", True),
        ("/var/lib/containers/storage/overlay", False),
        ("/var/lib/kubelet/pods/1/volumes/x", False),
        ("/var/lib/kubelet", True),
        ("/", True),
    ],
)
def test_mount_points_that_are_left_out_by_default(
    tmp_path: Path, clock: FakeClock, point: str, kept: bool
) -> None:
    table(tmp_path, f"40 28 8:16 / {point} rw - tmpfs tmpfs rw")
    found = space(list(collector(Files(tmp_path, clock), clock, settings=Settings()).collect()))
    assert (point in found) is kept


def test_a_share_that_is_not_asked_for_is_not_touched(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    kinds = ("nfs", "nfs4", "cifs", "smb3", "lustre", "gpfs", "wekafs", "beegfs", "ceph", "fuse.s3fs", "9p")
    table(
        tmp_path,
        *(f"{40 + n} 28 0:{50 + n} / /mnt/{kind} rw - {kind} x rw" for n, kind in enumerate(kinds)),
    )
    assert list(collector(Files(tmp_path, clock), clock, storage).collect()) == []
    assert storage.asked == []


def test_a_kernel_that_made_a_file_system_read_only_is_seen(clock: FakeClock) -> None:
    found = space(list(collector(machine("roce-bond"), clock).collect()))
    assert {point for point, reading in found.items() if reading.readonly} == {"/"}


def test_a_hung_mount_costs_nobody_else(tmp_path: Path, storage: Storage, clock: FakeClock) -> None:
    """One call is out however often we look; the others answer each time; its last answer keeps its time."""
    table(tmp_path, ROOT, SHARE, DATA)
    share = f"{tmp_path}/share"
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    assert set(space(list(watched.collect()))) == {"/", "/share", "/data"}
    well_s = clock.wall_s()
    before = threading.active_count()

    release = storage.hang(share)
    for passes in range(1, 21):
        clock.advance(15.0)
        readings = list(watched.collect())
        assert set(space(readings)) == {"/", "/data"}
        assert failed(readings) == {"/share": "timeout"}
        assert probes(readings)["/share"].last_probe_timestamp_seconds == well_s
        assert probes(readings)["/share"].probe_duration_seconds == 15.0 * (passes - 1)
        assert probes(readings)["/data"].last_probe_timestamp_seconds == clock.wall_s()
    assert storage.asked.count(share) == 2
    assert threading.active_count() <= before + 1

    del storage.hung[share]
    release.set()
    assert storage.came_back.acquire(timeout=10)
    answered = _until(lambda: "/share" in space(list(watched.collect())))
    assert answered
    readings = list(watched.collect())
    assert probes(readings)["/share"].last_probe_timestamp_seconds == clock.wall_s()
    assert failed(readings) == {}


def _until(true: Callable[[], bool]) -> bool:
    """The worker may need a moment between the end of its call and saying so."""
    return any(true() for _ in range(1000))


def test_two_hung_mounts_cost_one_timeout_together_and_a_thread_each(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    table(tmp_path, SHARE, OTHER, ROOT)
    for name in ("share", "other"):
        storage.hang(f"{tmp_path}/{name}")
    before = threading.active_count()
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    for _ in range(3):
        readings = list(watched.collect())
        assert set(space(readings)) == {"/"}
        assert set(failed(readings)) == {"/share", "/other"}
    assert threading.active_count() == before + 3


def test_a_mount_that_never_answered_is_as_old_as_the_first_question(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    """An agent that is started while a share hangs must let its alert fire."""
    table(tmp_path, SHARE)
    storage.hang(f"{tmp_path}/share")
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    list(watched.collect())
    first_s = clock.wall_s()
    clock.advance(300.0)
    assert probes(list(watched.collect()))["/share"].last_probe_timestamp_seconds == first_s


def test_a_share_mounted_anew_is_asked_though_the_old_one_hangs(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    table(tmp_path, SHARE)
    share = f"{tmp_path}/share"
    storage.hang(share)
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    assert failed(list(watched.collect())) == {"/share": "timeout"}
    storage.hung.pop(share)  # what is inside the call stays there
    table(tmp_path, SHARE.replace("41 28 0:50", "77 28 0:66"))
    assert set(space(list(watched.collect()))) == {"/share"}


def test_threads_for_hung_mounts_are_bounded(
    tmp_path: Path, storage: Storage, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(filesystem, "MAX_WORKERS", 3)
    table(tmp_path, *(f"{100 + n} 28 0:{100 + n} / /m{n} rw - nfs4 nas:/m{n} rw" for n in range(5)))
    for n in range(5):
        storage.hang(f"{tmp_path}/m{n}")
    before = threading.active_count()
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    for _ in range(2):
        readings = list(watched.collect())
        assert threading.active_count() == before + 3
        assert sorted(failed(readings).values()) == ["timeout"] * 3 + ["workers_stuck"] * 2
        assert len(probes(readings)) == 5


@pytest.mark.parametrize("code", [errno.ESTALE, errno.EIO, errno.ENOTCONN])
def test_an_error_is_no_answer(tmp_path: Path, storage: Storage, clock: FakeClock, code: int) -> None:
    table(tmp_path, ROOT, SHARE)
    watched = collector(Files(tmp_path, clock), clock, storage, NETWORK)
    list(watched.collect())
    well_s = clock.wall_s()
    storage.errors[f"{tmp_path}/share"] = code
    clock.advance(15.0)
    readings = list(watched.collect())
    assert set(space(readings)) == {"/"}
    assert probes(readings)["/share"].last_probe_timestamp_seconds == well_s
    assert failed(readings) == {"/share": "io_error"}


def test_a_mount_that_we_may_not_ask_is_not_called_hung(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    table(tmp_path, ROOT, DATA)
    storage.errors[f"{tmp_path}/data"] = errno.EACCES
    readings = list(collector(Files(tmp_path, clock), clock, storage).collect())
    assert set(probes(readings)) == {"/"}
    assert failed(readings) == {"/data": "permission"}


def test_g02_a_mount_that_goes_away_takes_its_series_along(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    table(tmp_path, ROOT, DATA)
    watched = collector(Files(tmp_path, clock), clock, storage)
    assert set(probes(list(watched.collect()))) == {"/", "/data"}
    table(tmp_path, ROOT)
    assert set(probes(list(watched.collect()))) == {"/"}
    # ... also one that goes between the table and the call
    table(tmp_path, ROOT, DATA)
    storage.errors[f"{tmp_path}/data"] = errno.ENOENT
    readings = list(watched.collect())
    assert set(probes(readings)) == {"/"}
    assert failed(readings) == {}


def test_a_path_that_leads_elsewhere_is_not_reported_as_the_mount(
    tmp_path: Path, storage: Storage, clock: FakeClock
) -> None:
    """A container that was started before the mount, without propagation: the folder is there, and empty."""
    table(tmp_path, ROOT, DATA, SHARE)
    own = put(
        tmp_path,
        "/own",
        f"90 1 0:8 / / rw - overlay overlay rw\n91 90 8:1 / {tmp_path} ro - ext4 /dev/sda1 rw\n"
        f"92 91 0:99 / {tmp_path}/share rw - tmpfs tmpfs rw\n",  # another file system lies over it
    )
    watched = FilesystemCollector(Files(tmp_path, clock), NETWORK, clock, storage, own_mountinfo=own)
    readings = list(watched.collect())
    assert set(space(readings)) == {"/"}
    assert storage.asked == [str(tmp_path)]
    assert failed(readings) == {"/data": "not_visible", "/share": "not_visible"}


def test_this_machine(clock: FakeClock) -> None:
    """Real calls: what the kernel says of the file system that holds these tests."""
    readings = list(FilesystemCollector(Files("/", clock), Settings(), clock).collect())
    assert set(failed(readings).values()) <= {"permission", "not_visible"}
    for point, found in space(readings).items():
        if found.size_bytes is not None and found.available_bytes is not None:
            told = os.statvfs(point)
            assert found.size_bytes == told.f_blocks * told.f_frsize
            assert 0 <= found.available_bytes <= found.size_bytes


def test_names_keep_the_rules() -> None:
    assert list(faults(filesystem.METRICS)) == []


def test_closing_ends_its_threads_the_stuck_one_when_its_call_returns(
    tmp_path: Path, clock: FakeClock, storage: Storage
) -> None:
    """A reload that changes the settings makes a new collector each time: the old one must leave nothing."""
    table(tmp_path, "1 0 8:1 / /a rw - ext4 /dev/a rw", "2 0 8:2 / /b rw - ext4 /dev/b rw")
    stuck = storage.hang(f"{tmp_path}/a")
    before = set(threading.enumerate())
    files = Files(tmp_path, clock)
    account = Account("filesystem", clock)
    source = Source(collector(files, clock, storage), 1.0, clock, account)
    read = threading.Event()
    source.start(clock.monotonic_s(), read.set)
    assert read.wait(10)
    threads = set(threading.enumerate()) - before
    assert len(threads) == 3  # the source's, one that is stuck, one that took its place
    source.close()
    stuck.set()
    for thread in threads:
        thread.join(10)
        assert not thread.is_alive()
