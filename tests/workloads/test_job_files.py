"""The prolog's files as the agent reads them."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.readings.base import Failure
from clusterwatt.workloads.job_files import DEVICE, MAX_FILES, JobFile, JobFiles, parse
from clusterwatt.workloads.slurm_job import RANGE, UUID, numbered

GPU = "GPU-aaaaaaaa-0000-0000-0000-000000000001"


def jobs(files: JobFiles) -> tuple[list[str], list[str]]:
    """Ids of the jobs, and reasons of the failures."""
    read = list(files.read())
    return (
        [found.job_id for found in read if isinstance(found, JobFile)],
        [found.reason for found in read if isinstance(found, Failure)],
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in (1, 2):
        (tmp_path / f"slurm-{number}.a").write_text(f"job_id={number}\ngpus={GPU}\n")
    return tmp_path


def test_a_file_that_is_replaced_is_read_anew(folder: Path) -> None:
    files = JobFiles(str(folder))
    list(files.read())
    new = folder / ".new"
    new.write_text(f"job_id=1\ngpus={GPU},minor:3\nuser=ada\n")
    new.rename(folder / "slurm-1.a")
    first = next(iter(files.read()))
    assert isinstance(first, JobFile)
    assert (first.user, first.gpus) == ("ada", (GPU, "minor:3"))


def test_what_cannot_be_read_is_as_it_was(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JobFiles(str(folder))
    assert jobs(files) == (["1", "2"], [])
    scandir, stat = os.scandir, os.stat

    def refused(path: Any, *arguments: Any, **named: Any) -> Any:
        raise OSError(errno.EIO, "planted", path)

    monkeypatch.setattr(os, "scandir", refused)
    assert jobs(files) == (["1", "2"], ["io_error"])
    monkeypatch.setattr(os, "scandir", scandir)
    monkeypatch.setattr(
        os, "stat", lambda path, **named: (refused if str(path).endswith("-1.a") else stat)(path, **named)
    )
    assert jobs(files) == (["1", "2"], ["io_error"])
    assert jobs(JobFiles(str(folder))) == (["2"], ["io_error"])
    monkeypatch.undo()
    (folder / "slurm-1.a").unlink()
    assert jobs(files) == (["2"], [])


def test_no_folder_no_jobs(tmp_path: Path) -> None:
    assert jobs(JobFiles(f"{tmp_path}/none")) == ([], [])


def test_of_too_many_files_those_of_the_newest_jobs_count_and_it_is_told(tmp_path: Path) -> None:
    for number in range(9_000, 9_000 + MAX_FILES):
        (tmp_path / f"slurm-{number}.a").write_text(f"job_id={number}\n")
    files = JobFiles(str(tmp_path))
    assert len(jobs(files)[0]) == MAX_FILES
    assert jobs(files)[1] == []
    (tmp_path / "slurm-10999.a").write_text("job_id=10999\n")
    found, reasons = jobs(files)
    assert "10999" in found
    assert "9000" not in found
    assert (len(found), reasons) == (MAX_FILES, ["limit"])


def test_a_file_that_goes_while_it_is_looked_at(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = JobFiles(str(folder))
    monkeypatch.setattr(files, "_names", lambda: ["slurm-1.a", "slurm-9.gone"])
    assert jobs(files) == (["1"], [])


LINES = st.lists(
    st.sampled_from(["job_id=7", f"gpus={GPU}", "gpus=x", "started=1e9", "uid==", "="]) | st.text()
)


@given(LINES.map("\n".join))
def test_whatever_a_file_holds_it_is_a_job_or_refused(text: str) -> None:
    try:
        job = parse(text, 0.0)
    except ValueError:
        return
    assert job.job_id.isdigit()
    assert all(DEVICE.fullmatch(gpu) for gpu in job.gpus)


@given(st.lists(st.sampled_from(["0", "3-5", "9-1", GPU, "-", "x"]) | st.text(max_size=6)).map(",".join))
def test_whatever_a_list_of_gpus_holds_its_devices_have_the_form_of_devices(text: str) -> None:
    devices = numbered(text, "minor")
    assert all(DEVICE.fullmatch(device) for device in devices)
    assert len(devices) == len(set(devices))
    for entry in text.split(","):
        if UUID.fullmatch(entry):
            assert entry in devices
        if RANGE.fullmatch(entry) and "-" not in entry:
            assert f"minor:{int(entry)}" in devices
