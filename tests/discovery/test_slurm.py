"""Nodes from answers in the form of Slurm's own, and the file that Prometheus reads."""

from __future__ import annotations

import json
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt import cli
from clusterwatt.discovery import file_sd, hostlist, slurm
from clusterwatt.discovery.slurm import DiscoveryError, Node

TEXT = """\
NodeName=gpu002 Arch=x86_64 CoresPerSocket=48 CPUAlloc=96 CPUEfctv=96 CPUTot=96 CPULoad=95.1 \
AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8(S:0-1) NodeAddr=10.1.0.2 \
Version=23.11.4 OS=Linux 5.14.0-362.el9.x86_64 #1 SMP PREEMPT_DYNAMIC Wed Jan 3 RealMemory=2000000 \
State=MIXED+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=train,debug \
BootTime=2026-01-05T10:00:00 Reason=NodeName=evil State=IDLE bad fan [root@2026-01-06T10:00:00]
NodeName=gpu001 Arch=x86_64 AvailableFeatures=(null) ActiveFeatures=(null) Gres=(null) NodeAddr=gpu001 \
NodeHostName=gpu001 Version=23.11.4 State=DOWN*+NOT_RESPONDING Partitions=train
NodeName=spare[01-02] Arch=x86_64 State=IDLE NodeAddr=10.1.1.[1-2] Partitions=
NodeName=next1 Arch=x86_64 State=FUTURE NodeAddr=next1
"""
OLD_JSON = {  # 21.08: the state is one word, lists are texts
    "meta": {"plugin": {"type": "openapi/dbv0.0.37"}},
    "errors": [],
    "nodes": [
        {
            "name": "a1",
            "address": "a1",
            "state": "idle",
            "state_flags": ["DRAIN"],
            "features": "h100,ib",
            "active_features": "h100",
            "partitions": ["train"],
            "gres": "gpu:8",
        }
    ],
}
NEW_JSON = {  # 23.11 and later: lists
    "nodes": [
        {
            "name": "b2",
            "address": "fd00::2",
            "state": ["ALLOCATED"],
            "features": ["b200"],
            "active_features": ["b200"],
            "partitions": ["train", "long"],
            "gres": "gpu:b200:8",
        },
        {"name": "b3", "address": "b3", "state": ["FUTURE"], "partitions": []},
    ]
}


Scontrol = Callable[[str], Path]


@pytest.fixture
def scontrol(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scontrol:
    """Writes the program that is found as scontrol, from what its shell script does."""
    monkeypatch.setenv("PATH", str(tmp_path))

    def write(script: str) -> Path:
        program = tmp_path / "scontrol"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        return program

    return write


def by_name(answer: str) -> dict[str, Node]:
    return {node.name: node for node in slurm.read(answer)}


def test_text() -> None:
    nodes = by_name(TEXT)
    assert list(nodes) == ["gpu001", "gpu002", "spare01", "spare02"]
    assert nodes["gpu002"] == Node(
        name="gpu002",
        address="10.1.0.2",
        states=("mixed", "drain"),
        partitions=("train", "debug"),
        features=("h100", "ib"),
        gres="gpu:h100:8(S:0-1)",
    )
    assert nodes["gpu001"].states == ("down", "not_responding")
    assert nodes["gpu001"].features == ()
    assert nodes["spare02"].address == "10.1.1.2"


def test_text_without_oneliner() -> None:
    lines = "NodeName=x1 Arch=x86_64\n   ActiveFeatures=h100\n   State=IDLE+DRAIN\n\nNodeName=x2\n"
    nodes = by_name(lines)
    assert nodes["x1"].states == ("idle", "drain")
    assert nodes["x1"].features == ("h100",)
    assert nodes["x2"].address == "x2"


def test_json_of_old_and_new_versions() -> None:
    old, new = by_name(json.dumps(OLD_JSON)), by_name(json.dumps(NEW_JSON))
    assert old["a1"] == Node("a1", "a1", ("idle", "drain"), ("train",), ("h100",), "gpu:8")
    assert list(new) == ["b2"]
    assert new["b2"].partitions == ("train", "long")


@pytest.mark.parametrize(
    "answer",
    [
        "",
        "slurm_load_node error: Unable to contact slurm controller\n",
        "{",
        '{"nodes": 1}',
        '{"nodes": []}',
        "{}",
        '{"nodes": [{"address": "x"}]}',
        "NodeName=gpu[1- State=IDLE",
        "NodeName=a NodeAddr=b/c State=IDLE",
        "NodeName=a[1-999999999] State=IDLE",
        "[" * 100_000,
        '{"nodes":' + "[" * 100_000,
    ],
    ids=lambda text: text[:20] or "empty",
)
def test_a_bad_answer_is_one_line_and_keeps_the_file(
    answer: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, out = tmp_path / "answer", tmp_path / "nodes.json"
    saved.write_text(answer)
    out.write_text("[]")
    assert cli.main(["discovery", "slurm", "--input", str(saved), "--file", str(out)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(saved) in line
    assert "stays as it is" in line
    assert out.read_text() == "[]"


def test_the_file_is_replaced_only_when_it_changes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    saved, out = tmp_path / "answer", tmp_path / "nodes.json"
    saved.write_text(TEXT)
    command = ["discovery", "slurm", "--input", str(saved), "--file", str(out), "--port", "9000"]
    assert cli.main(command) == 0
    first = out.stat()
    assert stat.S_IMODE(first.st_mode) == 0o644
    assert cli.main(command) == 0
    assert (out.stat().st_ino, out.stat().st_mtime_ns) == (first.st_ino, first.st_mtime_ns)
    saved.write_text(TEXT.replace("MIXED+DRAIN", "MIXED"))
    assert cli.main(command) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.rpartition(", ")[2] for line in said] == ["written", "as before", "written"]
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []
    group = json.loads(out.read_text())[1]
    assert group["targets"] == ["10.1.0.2:9000"]
    assert group["labels"]["__meta_slurm_partitions"] == ",train,debug,"


def test_labels_tell_who_is_up() -> None:
    groups = json.loads(file_sd.render(slurm.read(TEXT), 1))
    found = {group["labels"]["__meta_slurm_node"]: group["labels"] for group in groups}
    assert {name: labels["__meta_slurm_availability"] for name, labels in found.items()} == {
        "gpu001": "down",
        "gpu002": "drained",
        "spare01": "up",
        "spare02": "up",
    }
    assert all(name.startswith("__meta_") for labels in found.values() for name in labels)
    assert json.loads(file_sd.render(slurm.read(json.dumps(NEW_JSON)), 1))[0]["targets"] == ["[fd00::2]:1"]


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    saved = tmp_path / "answer"
    saved.write_text(TEXT)
    assert (
        cli.main(["discovery", "slurm", "--input", str(saved), "--file", str(tmp_path / "no" / "x.json")])
        == 1
    )
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_scontrol_is_asked_for_text_where_it_has_no_json(
    scontrol: Scontrol,
) -> None:
    program = scontrol('[ "$3" = --oneliner ] || exit 1\necho NodeName=n1 State=IDLE')
    assert [node.name for node in slurm.ask()] == ["n1"]
    program.unlink()
    with pytest.raises(DiscoveryError, match="not on PATH"):
        slurm.ask()


def test_what_scontrol_complains_of_is_told(scontrol: Scontrol) -> None:
    scontrol("echo slurm_load_node error: Unable to contact slurm controller >&2; exit 1")
    with pytest.raises(DiscoveryError, match=r"Unable to contact slurm controller; `scontrol ping`"):
        slurm.ask()


def test_one_that_hangs_is_not_asked_again_for_text(
    scontrol: Scontrol, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(slurm, "TIMEOUT_S", 0.3)
    asked = tmp_path / "asked"
    scontrol(f"echo once >> {asked}; exec /bin/sleep 60")
    with pytest.raises(DiscoveryError, match=r"took more than 0\.3 s"):
        slurm.ask()
    assert asked.read_text() == "once\n"


def test_scontrol_knows_where_slurm_is_and_nothing_else_of_the_environment(
    scontrol: Scontrol, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SLURM_JSON would put the answer on one line."""
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm/slurm.conf")
    monkeypatch.setenv("SLURM_JSON", "compact")
    scontrol('echo "NodeName=${SLURM_CONF##*/} Partitions=$SLURM_JSON"')
    assert slurm.ask() == [Node("slurm.conf", "slurm.conf")]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a[1-3,7],b", ["a1", "a2", "a3", "a7", "b"]),
        ("n[008-011]", ["n008", "n009", "n010", "n011"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("gpu[01-02]-ib", ["gpu01-ib", "gpu02-ib"]),
    ],
)
def test_hostlists(text: str, names: list[str]) -> None:
    assert hostlist.expand(text) == names


@given(st.text(alphabet="a1[]-,0", max_size=30))
def test_a_hostlist_expands_or_is_refused(text: str) -> None:
    try:
        names = hostlist.expand(text)
    except ValueError:
        return
    assert names
    assert not any(character in name for name in names for character in "[],")
