"""File systems of a simulated node: each that is probed has a size, and the shared ones fill up slowly."""

from __future__ import annotations

import itertools

import pytest

from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from clusterwatt.simulate.storage import LUSTRE_MOUNT, NFS_MOUNT, Storage
from clusterwatt.simulate.troubles import Trouble, Troubles
from clusterwatt.simulate.work import Flat

NOW_S = 1_700_000_000.0
DAY_S = 86_400.0


def filesystems(
    time_s: float, *troubles: Trouble
) -> tuple[dict[str, Filesystem], dict[str, FilesystemProbe]]:
    storage = Storage(Flat(0.0), Flat(0.0), NOW_S - DAY_S, Troubles(troubles))
    found = list(storage.filesystems(time_s))
    return (
        {space.mountpoint: space for space in found if isinstance(space, Filesystem)},
        {probe.mountpoint: probe for probe in found if isinstance(probe, FilesystemProbe)},
    )


def available_ratio(space: Filesystem) -> float:
    assert space.available_bytes is not None
    assert space.size_bytes is not None
    return space.available_bytes / space.size_bytes


def test_every_mount_that_is_probed_has_a_size() -> None:
    spaces, probes = filesystems(NOW_S)
    assert spaces.keys() == probes.keys() >= {"/", NFS_MOUNT, LUSTRE_MOUNT}
    for mountpoint, space in spaces.items():
        assert space.fstype == probes[mountpoint].fstype
        assert 0.0 < available_ratio(space) < 1.0


@pytest.mark.parametrize("mountpoint", [NFS_MOUNT, LUSTRE_MOUNT])
def test_shared_ones_fill_up_and_are_cleaned_before_they_worry_anybody(mountpoint: str) -> None:
    """The rules warn below 20 %, and below 40 % when it would be full within a day."""
    days = [available_ratio(filesystems(NOW_S + day * DAY_S)[0][mountpoint]) for day in range(60)]
    steps = [after - before for before, after in itertools.pairwise(days)]
    assert min(days) > 0.2
    assert -0.02 < min(steps) < 0.0
    assert sum(step > 0.0 for step in steps) in (2, 3), "a clean-up now and then"


def test_a_mount_that_hangs_has_no_size_and_leaves_the_others_theirs() -> None:
    hangs = Trouble("mount_hangs", NOW_S, NOW_S + 60.0, item="")
    spaces, probes = filesystems(NOW_S + 30.0, hangs)
    assert NFS_MOUNT in probes
    assert NFS_MOUNT not in spaces
    assert LUSTRE_MOUNT in spaces


def test_a_shared_one_can_run_full() -> None:
    fills = Trouble("disk_fills", NOW_S, NOW_S + 60.0, item=NFS_MOUNT, amount=0.99)
    assert available_ratio(filesystems(NOW_S + 60.0, fills)[0][NFS_MOUNT]) == pytest.approx(0.0, abs=0.001)
