"""Variables of processes: those that were asked for, and not a byte of the others."""

from __future__ import annotations

import errno
import logging
import os
import sys
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.workloads.environ import Variables
from tests.workloads.trees import Tree

SECRET = "EXAMPLE-NOT-REAL"


def read(tmp_path: Path, content: bytes, *names: str) -> dict[str, str]:
    Tree(tmp_path).write("/proc/77/environ", content)
    return Variables(names).of(str(tmp_path), 77)


def test_names_are_exact(tmp_path: Path) -> None:
    content = b"XSLURM_JOB_ID=1\0SLURM_JOB_ID=77\0SLURM_JOB_ID_X=2\0slurm_job_id=3\0SLURM_JOB_IDS=4\0"
    assert read(tmp_path, content, "SLURM_JOB_ID", "ABSENT") == {"SLURM_JOB_ID": "77"}


def test_a_value_may_hold_what_looks_like_a_variable(tmp_path: Path) -> None:
    content = b"NOTE=x\nSLURM_JOB_ID=1\0SLURM_JOB_NAME=a=b\nSLURM_JOB_ID=2\0SLURM_JOB_ID=3"
    names = ("SLURM_JOB_ID", "SLURM_JOB_NAME")
    assert read(tmp_path, content, *names) == {"SLURM_JOB_NAME": "a=b\nSLURM_JOB_ID=2", "SLURM_JOB_ID": "3"}


def test_the_first_of_two_counts_as_for_the_process_itself(tmp_path: Path) -> None:
    assert read(tmp_path, b"A=1\0A=2\0", "A") == {"A": "1"}


def test_long_and_undecodable_values_are_bounded(tmp_path: Path) -> None:
    assert read(tmp_path, b"A=" + b"x" * 9000 + b"\0B=\xff\0", "A", "B") == {"A": "x" * 4096, "B": "\ufffd"}


def test_a_process_that_has_ended_says_nothing(tmp_path: Path) -> None:
    assert Variables(["A"]).of(str(tmp_path), 78) == {}


def test_our_own_process_is_read(tmp_path: Path) -> None:
    own = Variables(["PATH"]).of("", os.getpid())
    assert set(own) <= {"PATH"}


@given(
    st.dictionaries(
        st.sampled_from("ABCDE"), st.text(alphabet=st.characters(codec="ascii", exclude_characters="\0"))
    )
)
def test_every_variable_that_is_asked_for_comes_back_and_no_other(variables: dict[str, str]) -> None:
    content = "".join(f"{name}={text}\0" for name, text in variables.items()).encode()
    found = {match[1].decode(): match[2].decode() for match in Variables("ABC")._pattern.finditer(content)}
    assert found == {name: text for name, text in variables.items() if name in "ABC"}


def test_g18_secrets_do_not_leave_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    Tree(tmp_path).process(77, {"DB_PASSWORD": SECRET, "SLURM_JOB_ID": "77", "API_KEY": SECRET})
    caplog.set_level(logging.DEBUG)
    variables = Variables(["SLURM_JOB_ID"])
    assert variables.of(str(tmp_path), 77) == {"SLURM_JOB_ID": "77"}
    assert SECRET not in caplog.text
    assert SECRET not in repr(vars(variables))

    def fails(descriptor: int) -> None:
        os_close(descriptor)
        raise PermissionError(errno.EPERM, "planted")

    os_close = os.close
    monkeypatch.setattr(os, "close", fails)
    with pytest.raises(PermissionError) as caught:
        variables.of(str(tmp_path), 77)
    monkeypatch.undo()
    told = traceback.TracebackException.from_exception(caught.value, capture_locals=True)
    assert SECRET not in "".join(told.format())
    assert SECRET not in str(caught.value)


def test_no_text_of_the_process_is_left_in_memory_that_a_frame_can_reach(tmp_path: Path) -> None:
    frames: list[dict[str, object]] = []

    def trace(frame: object, event: str, _: object) -> object:
        if event == "return" and getattr(frame, "f_code", None) is Variables.of.__code__:
            frames.append(dict(frame.f_locals))  # type: ignore[attr-defined]  # a frame
        return trace

    before = sys.gettrace()
    sys.settrace(trace)  # type: ignore[arg-type]  # the type of trace functions is private
    try:
        read(tmp_path, f"SLURM_JOB_ID=77\0DB_PASSWORD={SECRET}\0".encode(), "SLURM_JOB_ID")
    finally:
        sys.settrace(before)
    assert frames
    assert SECRET not in repr(frames)
