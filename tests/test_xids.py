"""The catalogue of XIDs: complete, of known words, and not read before it is needed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import resources
from typing import Any

import pytest
import yaml

from clusterwatt.collectors import kmsg
from clusterwatt.xids import catalogue


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load(resources.files("clusterwatt").joinpath("data/xid.yaml").read_text("utf-8"))


def test_every_code_has_words_of_the_lists(document: Any) -> None:
    enums = document["enums"]
    codes = [*catalogue().xids.values(), *(code for code, _ in catalogue().sxids.values())]
    for code in codes:
        assert code.xid_class in enums["class"], code
        assert code.severity in enums["severity"], code
        assert code.action in enums["action"], code
        assert code.text.endswith("."), code


def test_every_code_of_1_to_173_is_known(document: Any) -> None:
    assert sorted(catalogue().xids) == list(range(1, 174))
    assert len(document["xids"]) + len(document["unused_on_ampere_and_newer"]["codes"]) == 173


@pytest.mark.parametrize(
    ("xid", "expected"),
    [
        (13, ("application", "warning", "restart_app")),
        (48, ("memory", "critical", "reset_gpu")),
        (74, ("nvlink", "critical", "reset_gpu")),
        (79, ("hardware", "critical", "reboot_node")),
        (119, ("driver", "critical", "reset_gpu")),
        (16, ("driver", "warning", "none")),
        (9999, ("hardware", "warning", "none")),
    ],
)
def test_what_a_code_means(xid: int, expected: tuple[str, str, str]) -> None:
    assert catalogue().xid(xid)[1:4] == expected


@pytest.mark.parametrize(
    ("sxid", "fatal", "fatality", "severity"),
    [
        (12028, False, "non_fatal", "critical"),
        (20034, True, "fatal", "critical"),
        (12020, True, "always_fatal", "critical"),
        (12020, False, "non_fatal", "critical"),  # the line says what happened this time
        (22013, True, "fatal", "info"),
        (99999, True, "fatal", "warning"),
        (99999, False, "non_fatal", "warning"),
    ],
)
def test_what_a_code_of_a_switch_means(sxid: int, fatal: bool, fatality: str, severity: str) -> None:
    found = catalogue().sxid(sxid, fatal=fatal)
    assert (found.fatality, found.code.severity) == (fatality, severity)


def test_the_patterns_are_those_of_the_data(document: Any) -> None:
    assert document["parse"]["xid_line"] == kmsg.XID.pattern
    assert document["parse"]["sxid_line"] == kmsg.SXID.pattern


def test_an_echo_is_never_critical(document: Any) -> None:
    assert {catalogue().xid(code).severity for code in catalogue().echo_codes} <= {"info", "warning"}
    assert catalogue().echo_window_s == 30.0


def test_the_loader_in_python_reads_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = catalogue()
    monkeypatch.delattr(yaml, "CSafeLoader", raising=False)
    assert catalogue.__wrapped__() == quick


def test_the_agent_and_the_driver_host_start_without_it() -> None:
    code = (
        "import clusterwatt.running, clusterwatt.driver.host, clusterwatt.xids as xids;"
        "print(xids.catalogue.cache_info().currsize)"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert ended.stdout.strip() == "0"


def test_no_text_names_what_only_its_authors_know() -> None:
    text = resources.files("clusterwatt").joinpath("data/xid.yaml").read_text("utf-8")
    assert not re.search(r"/work|TODO|FIXME", text)
