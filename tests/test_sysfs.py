"""Files below a root: what is not offered is None, anything else is an error, descriptors are kept."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import pytest

from clusterwatt.sysfs import LISTING_SECONDS, Files
from tests.clocks import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def files(tmp_path: Path, clock: FakeClock) -> Files:
    return Files(tmp_path, clock)


def put(root: Path, path: str, content: str) -> Path:
    file = root / path.lstrip("/")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return file


def test_a_kept_descriptor_sees_new_values(tmp_path: Path, files: Files) -> None:
    file = put(tmp_path, "/sys/a", "1\n")
    assert files.integer("/sys/a") == 1
    file.write_text("22\n")
    assert files.integer("/sys/a") == 22


def test_a_file_is_opened_once(tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, "/sys/a", "1\n")
    opened: list[str] = []
    real_open = os.open

    def counting(path: str, flags: int) -> int:
        opened.append(path)
        return real_open(path, flags)

    monkeypatch.setattr(os, "open", counting)
    assert [files.integer("/sys/a") for _ in range(5)] == [1] * 5
    assert len(opened) == 1


@pytest.mark.parametrize("text", ["N/A (no PMA)\n", "", "<unknown>", "12.5"])
def test_what_is_no_number_is_absent(tmp_path: Path, files: Files, text: str) -> None:
    put(tmp_path, "/sys/a", text)
    assert files.integer("/sys/a") is None


def test_a_missing_file_is_absent_and_found_when_it_appears(tmp_path: Path, files: Files) -> None:
    assert files.integer("/sys/a") is None
    put(tmp_path, "/sys/a", "3")
    assert files.integer("/sys/a") == 3


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP, errno.ENODEV, errno.ENODATA, errno.ENXIO])
def test_an_attribute_that_is_not_offered_now_is_absent(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    put(tmp_path, "/sys/a", "3")
    assert files.integer("/sys/a") == 3

    def refuse(*_: object) -> bytes:
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patch:
        patch.setattr(os, "pread", refuse)
        assert files.integer("/sys/a") is None
    assert files.integer("/sys/a") == 3


@pytest.mark.parametrize("code", [errno.EIO, errno.EACCES])
def test_any_other_error_is_raised_and_names_the_file(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    put(tmp_path, "/sys/a", "3")

    def refuse(*_: object) -> bytes:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "pread", refuse)
    with pytest.raises(OSError, match="/sys/a") as caught:
        files.integer("/sys/a")
    assert caught.value.errno == code


def test_a_device_that_went_and_came_back_is_opened_anew(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = put(tmp_path, "/sys/a", "3")
    assert files.integer("/sys/a") == 3
    file.unlink()
    put(tmp_path, "/sys/a", "4")
    stale = list(files._descriptors.values())
    real_pread = os.pread

    def gone(descriptor: int, length: int, offset: int) -> bytes:
        if descriptor in stale:
            stale.remove(descriptor)
            raise OSError(errno.ENODEV, os.strerror(errno.ENODEV))
        return real_pread(descriptor, length, offset)

    monkeypatch.setattr(os, "pread", gone)
    assert files.integer("/sys/a") == 4


def test_a_table_that_comes_in_pieces_is_read_whole(
    tmp_path: Path, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "/proc/net/dev", "x" * 10_000)
    real_pread = os.pread
    monkeypatch.setattr(os, "pread", lambda fd, length, at: real_pread(fd, min(length, 3000), at))
    assert files.text("/proc/net/dev") == "x" * 10_000


def test_listings_are_kept_for_ten_seconds(tmp_path: Path, files: Files, clock: FakeClock) -> None:
    put(tmp_path, "/sys/class/net/eth0", "")
    assert files.names("/sys/class/net") == ("eth0",)
    put(tmp_path, "/sys/class/net/eth1", "")
    assert files.names("/sys/class/net") == ("eth0",)
    clock.advance(LISTING_SECONDS)
    assert files.names("/sys/class/net") == ("eth0", "eth1")
    assert files.names("/sys/class/infiniband") == ()


def test_the_number_of_kept_descriptors_is_bounded(tmp_path: Path, clock: FakeClock) -> None:
    files = Files(tmp_path, clock, max_descriptors=2)
    for name in "abcd":
        put(tmp_path, f"/sys/{name}", "1")
        assert files.integer(f"/sys/{name}") == 1
    assert len(files._descriptors) == 2


def test_forget_closes_what_it_forgets(tmp_path: Path, files: Files) -> None:
    put(tmp_path, "/sys/a/b", "1")
    files.integer("/sys/a/b")
    (descriptor,) = files._descriptors.values()
    files.forget("/sys/a")
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(descriptor)


def test_a_directory_is_not_a_value(tmp_path: Path, files: Files) -> None:
    (tmp_path / "sys").mkdir()
    assert files.text("/sys") is None


def test_when_descriptors_run_out_kept_ones_are_given_back_and_reading_goes_on(
    tmp_path: Path, files: Files
) -> None:
    for number in range(10):
        put(tmp_path, f"/sys/{number}", f"{number}\n")
    assert [files.integer(f"/sys/{number}") for number in range(9)] == list(range(9))
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    last = os.dup(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (last + 1, limits[1]))
    try:
        assert [files.integer(f"/sys/{number}") for number in range(10)] == list(range(10))
        assert len(files.names("/sys")) == 10
        spare = [os.dup(0) for _ in range(9)]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    for descriptor in (last, *spare):
        os.close(descriptor)


def test_half_of_all_descriptors_stay_free_of_kept_files(tmp_path: Path, files: Files) -> None:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    half = max(map(int, os.listdir("/proc/self/fd"))) + 5  # the numbers in use may lie anywhere below
    for number in range(half):
        put(tmp_path, f"/sys/{number}", f"{number}\n")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * half, limits[1]))
    try:
        for number in range(half):
            assert files.integer(f"/sys/{number}") == number
        kept = list(files._descriptors.values())
        assert kept
        assert max(kept) < half
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
