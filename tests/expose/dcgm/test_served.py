"""What a simulated node serves, against the table in docs/DCGM.md and the reference it was made from."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

from clusterwatt.config.model import DcgmPage as Settings
from clusterwatt.expose.dcgm.counters import CounterList, default_counters
from clusterwatt.expose.dcgm.fields import FIELDS, KNOWN, LABELS, OLD_NAMES, UNAVAILABLE
from clusterwatt.expose.dcgm.page import DcgmPage
from tests.expose.dcgm.pages import every_counter, names_on, page_for, simulated, values
from tests.machines import REPOSITORY

DOC = REPOSITORY / "docs" / "DCGM.md"
REFERENCE = REPOSITORY.parent / "shared" / "reference" / "nvml-metrics.md"
GOLDEN = Path(__file__).parent / "h100.prom"
NAME = re.compile(r"`((?:DCGM|dcgm)_\w+)`")
NAMES_OF_DCGM_EXPORTER = 100
SECONDS = 75  # what is read most rarely is read each minute, and an interval is half of one


class Documented(NamedTuple):
    """A row of the table: the name in 1.x, type, whether it is in the default list, and on which cards."""

    old: str
    kind: str
    default: str
    served: str


def documented() -> dict[str, Documented]:
    rows: dict[str, Documented] = {}
    for line in DOC.read_text(encoding="utf-8").splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if line.startswith("| `DCGM_"):
            name = cells[0].strip("`")
            assert name not in rows
            rows[name] = Documented(cells[1].strip("`"), *cells[2:5])
    return rows


def names_of_dcgm_exporter() -> set[str]:
    """All names of section 1 of the reference, where that is at hand, else of the document."""
    if not REFERENCE.exists():
        return set(documented()) | {row.old for row in documented().values() if row.old}
    text = REFERENCE.read_text(encoding="utf-8")
    section = text[text.index("\n## 1.") : text.index("\n## 2.")]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in NAME.findall(row)}


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of eight simulated H100, when all is asked for."""
    return simulated(page_for(tmp_path_factory.mktemp("dcgm"), *every_counter()), "h100", SECONDS)


@pytest.fixture(scope="module")
def usual() -> str:
    """The same with the default list."""
    return simulated(DcgmPage(Settings(), default_counters(KNOWN), "gpu-node-17"), "h100", SECONDS)


def test_every_name_of_dcgm_exporter_is_on_the_page_or_documented_as_not_there(everything: str) -> None:
    names, rows = names_of_dcgm_exporter(), documented()
    assert len(names) == NAMES_OF_DCGM_EXPORTER
    not_there = {name for name, row in rows.items() if row.served != "yes"}
    not_there |= {rows[name].old for name in not_there}
    assert names - names_on(everything) <= not_there


def test_the_document_claims_no_more_than_there_is(everything: str) -> None:
    rows = documented()
    claimed = {name for name, row in rows.items() if row.served == "yes"}
    assert claimed <= names_on(everything)
    assert {name for name, row in rows.items() if row.served == "no"} == set(UNAVAILABLE)
    assert set(rows) == {*FIELDS, *LABELS, *UNAVAILABLE}
    assert {row.old: name for name, row in rows.items() if row.old} == OLD_NAMES


def test_types_and_the_default_list_are_those_of_the_document() -> None:
    rows, default = documented(), default_counters(KNOWN)
    assert {counter.name for counter in default.counters} == {
        name for name, row in rows.items() if row.default == "on"
    }
    for counter in default.counters:
        assert counter.kind == rows[counter.name].kind
    assert {name for name, row in rows.items() if row.kind == "label"} == set(LABELS)


@pytest.mark.parametrize(
    ("card", "name"),
    [
        ("a100", "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL"),
        ("t4", "DCGM_FI_DEV_RETIRED_SBE"),
        ("t4", "DCGM_FI_DEV_RETIRED_DBE"),
        ("t4", "DCGM_FI_DEV_RETIRED_PENDING"),
    ],
)
def test_what_an_h100_lacks_an_older_card_has(tmp_path: Path, card: str, name: str) -> None:
    assert documented()[name].served.startswith("before ")
    assert name in names_on(simulated(page_for(tmp_path, name), card, SECONDS))


def test_instances_of_mig_have_their_own_memory_and_profiling_and_no_watts() -> None:
    page = DcgmPage(Settings(), default_counters(KNOWN), "gpu-node-17")
    shown = simulated(page, "h100", SECONDS, mig={2: ("3g.40gb", "1g.10gb")})
    of_instances = {"DCGM_FI_DEV_FB_USED", "DCGM_FI_DEV_FB_FREE", "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE"}
    for profile, number in (("3g.40gb", "2"), ("1g.10gb", "7")):
        found = set(values(shown, gpu="2", GPU_I_PROFILE=profile, GPU_I_ID=number))
        assert of_instances <= found
        assert "DCGM_FI_DEV_POWER_USAGE" not in found
    of_board = {
        line.partition("{")[0] for line in shown.splitlines() if 'gpu="2"' in line and "GPU_I_" not in line
    }
    assert "DCGM_FI_DEV_POWER_USAGE" in of_board
    assert not of_board & of_instances


def test_a_card_without_gpm_has_no_profiling_and_its_pcie_rates_all_the_same(tmp_path: Path) -> None:
    page = simulated(page_for(tmp_path, *every_counter()), "a100", SECONDS)
    assert not [name for name in names_on(page) if name.startswith("DCGM_FI_PROF_PIPE")]
    assert "DCGM_FI_PROF_PCIE_TX_BYTES" in names_on(page)


def test_the_page_of_a_gpu_stands_still(usual: str, update_golden: bool) -> None:
    """Headers, and the series of the first of eight GPUs."""
    lines = [line for line in usual.splitlines() if line.startswith("#") or 'gpu="0"' in line]
    if update_golden:
        GOLDEN.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert lines == GOLDEN.read_text(encoding="utf-8").splitlines()


def test_every_gpu_has_the_same_counters(usual: str) -> None:
    series = [line for line in usual.splitlines() if not line.startswith("#")]
    counters = {line.partition("{")[0] for line in series}
    assert len(series) == 8 * len(counters)
    assert len(counters) == 25  # of 26: one is a label


def test_promtool_reads_it(everything: str, promtool: Path) -> None:
    """It finds fault with DCGM's names and units, and with nothing else."""
    done = subprocess.run(
        [promtool, "check", "metrics"], input=everything, capture_output=True, text=True, check=False
    )
    said = done.stderr.splitlines()
    assert done.returncode in (0, 3), done.stderr  # 3: it was read, and has remarks
    assert [line for line in said if not line.startswith(("DCGM_", "dcgm_"))] == []
    assert not [line for line in said if "parse" in line or "duplicate" in line]


def test_a_counter_list_without_labels_still_names_its_gpu() -> None:
    page = DcgmPage(Settings(), CounterList(default_counters(KNOWN).counters[:1]), "n")
    assert names_on(simulated(page, "h100", 3)) == {
        "DCGM_FI_DEV_SM_CLOCK",
        "gpu",
        "UUID",
        "pci_bus_id",
        "device",
        "modelName",
        "Hostname",
    }
