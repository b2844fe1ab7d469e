"""The table of accelerators: the right row for each name, dense peaks, and nothing for what is not known."""

from __future__ import annotations

import subprocess
import sys
from importlib import resources
from typing import Any

import pytest
import yaml

from clusterwatt.accelerators import peak_flops, row_of
from clusterwatt.catalog import FULL, STANDARD
from clusterwatt.meters import peak
from clusterwatt.readings.gpu import GpuInfo


@pytest.fixture(scope="module")
def document() -> Any:
    return yaml.safe_load(
        resources.files("clusterwatt").joinpath("data/accelerators.yaml").read_text("utf-8")
    )


def info(name: str, parent_uuid: str = "", uuid: str = "GPU-a") -> GpuInfo:
    return GpuInfo("0", uuid, name, "hopper", "", "0", "", "", parent_uuid, "", "false")


@pytest.mark.parametrize(
    ("name", "bf16_tflops"),
    [
        ("NVIDIA H100 80GB HBM3", 989.5),  # 1979 in the data sheet is with sparsity
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H200", 989.5),
        ("NVIDIA GH200 480GB", 989),
        ("NVIDIA B200", 2250),
        ("NVIDIA GB200", 2500),
        ("NVIDIA A100-SXM4-40GB", 312),
        ("NVIDIA A100 80GB PCIe", 312),
        ("Tesla T4", None),  # Turing has no bf16
        ("NVIDIA GeForce RTX 3060", None),
        ("AMD Instinct MI300X", None),
        ("unknown", None),
    ],
)
def test_the_peak_of_a_name(name: str, bf16_tflops: float | None) -> None:
    expected = None if bf16_tflops is None else bf16_tflops * 1e12
    assert peak_flops(name).get("bf16") == expected


def test_the_names_in_the_file_have_the_rows_that_it_says(document: Any) -> None:
    for test in document["test_names"]:
        row = row_of(test["name"])
        assert (row.id if row else None) == test["id"], test["name"]


def test_every_source_is_named_and_no_row_is_without_one(document: Any) -> None:
    for row in document["accelerators"]:
        assert row["sources"], row["id"]
        assert set(row["sources"]) <= set(document["sources"]), row["id"]


@pytest.mark.parametrize("name", ["GRID T4-16Q", "NVIDIA A40-48C", "GRID A100-4-20C", "NVIDIA L40S-24A"])
def test_a_virtual_gpu_has_no_peak(name: str) -> None:
    assert peak_flops(name) == {}


def test_instances_and_boards_in_mig_mode_have_none() -> None:
    h100 = "NVIDIA H100 80GB HBM3"
    infos = [info(h100), info(h100, uuid="GPU-b"), info(h100, "GPU-b", "MIG-a")]
    assert {reading.uuid for reading in peak.measure(infos, {"GPU-b"})} == {"GPU-a"}


def test_bf16_is_standard_and_every_other_precision_full(document: Any) -> None:
    (metric,) = peak.METRICS
    levels = {
        reading.precision: metric.level_of(reading) for reading in peak.measure([info("NVIDIA B200")], ())
    }
    assert levels.pop("bf16") == STANDARD
    assert set(levels) == {"fp16", "tf32", "fp8", "fp4", "fp32"}
    assert set(levels.values()) == {FULL}
    assert metric.by is not None
    assert set(metric.by.levels) == {name for row in document["accelerators"] for name in row["dense_tflops"]}


def test_the_file_is_not_read_before_a_gpu_is_seen() -> None:
    code = "import clusterwatt.inventory, clusterwatt.accelerators as a; print(a.rows.cache_info().currsize)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "0"
