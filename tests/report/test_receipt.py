"""Receipts and cards: what a job's owner and a model's documentation are told."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.ledger.report import UsageRow, reader
from clusterwatt.report import card, commands, receipt
from clusterwatt.report.card import Data
from clusterwatt.report.commands import Source
from tests.clocks import FakeClock
from tests.report.books import NAME

ONE_H100 = {"NVIDIA H100 80GB HBM3": 1}


def row(ledger: Path, job_id: str = "slurm/1") -> UsageRow:
    with reader(ledger) as books:
        found = books.job(job_id)
    assert found is not None
    return msgspec.structs.replace(found, gpus=ONE_H100)


def test_a_receipt(ledger: Path) -> None:
    assert receipt.text(row(ledger), "gpu-1") == (
        "Receipt of slurm/1 (train, ann, account physics)\n"
        "  time    2026-11-30T13:00+01:00 to 2026-11-30T15:00+01:00 (2 h 00 min)\n"
        "  node    gpu-1; what the job used on other nodes is not in it\n"
        "  GPUs    1 x NVIDIA H100 80GB HBM3: 2.00 GPU hours, of which held and not used: 1.00 (50 %)\n"
        "  use     activity 40.0 %, tensor cores 20.0 %\n"
        "  energy  0.920 kWh (gpu 0.820, cpu 0.100); by counter 89 %, estimated 11 %\n"
        "  carbon  0.368 kg CO2e\n"
        "  cost    6.23 EUR (energy 0.23, GPUs 6.00); of which for GPUs not used: 3.03\n"
        "  seen    100.0 % of the time in which it held GPUs\n"
    )


def test_what_is_not_known_has_no_line(ledger: Path) -> None:
    bare = UsageRow(key="slurm/9", jobs=1, totals=row(ledger).totals.__class__(gpu_seconds=0.0), costs={})
    assert receipt.text(bare) == "Receipt of slurm/9\n"


def test_a_name_does_not_steer_a_terminal(ledger: Path) -> None:
    text = receipt.text(row(ledger, "slurm/2"))
    assert "\x1b" not in text
    assert NAME.replace("\x1b", "\\x1b") in text


def test_receipts_are_left_for_jobs_that_are_over(ledger: Path, tmp_path: Path) -> None:
    folder = tmp_path / "receipts"
    receipt.Receipts(folder, ledger, "gpu-1", FakeClock())(["slurm/1", "slurm/404"])
    (file,) = folder.iterdir()
    assert file.name == "slurm-1.txt"
    assert file.read_text().startswith("Receipt of slurm/1 (")
    assert stat.S_IMODE(file.stat().st_mode) & 0o007 == 0


def test_a_folder_that_cannot_be_written_costs_a_line_and_no_more(
    ledger: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    receipt.Receipts(tmp_path / "file", ledger, "gpu-1", FakeClock())(["slurm/1"])
    receipt.Receipts(tmp_path / "receipts", tmp_path / "none.db", "gpu-1", FakeClock())(["slurm/1"])
    assert len(caplog.records) == 2


def test_names_of_files_stay_in_their_folder() -> None:
    assert receipt.file_name("k8s/0a1b-2c") == "k8s-0a1b-2c.txt"
    assert receipt.file_name("unit/../../etc/passwd\n") == "unit-..-..-etc-passwd-.txt"


def test_compute_from_tokens(ledger: Path) -> None:
    """The fact sheet's check: 90 000 tokens/s of 4.844e10 FLOP on 8 H100 are 55.1 % of their peak."""
    totals = msgspec.structs.replace(row(ledger).totals, gpu_seconds=8 * 3600.0)
    job = msgspec.structs.replace(row(ledger), totals=totals, gpus={"NVIDIA H100 80GB HBM3": 8})
    done = card.compute(job, Data(tokens=90_000 * 3600.0, flops_per_token=4.844e10))
    assert done.flop == pytest.approx(1.569456e19)
    assert done.mfu_ratio == pytest.approx(0.551, abs=0.0005)
    assert done.method == card.COUNTED


def test_compute_without_tokens_is_an_estimate_and_says_so(ledger: Path) -> None:
    done = card.compute(row(ledger), Data())
    assert done.flop == pytest.approx(0.4 * 3600 * 989e12, rel=0.001)
    assert done.method.startswith("estimate")
    assert done.mfu_ratio is None


@pytest.mark.parametrize("gpus", [{}, {"Unknown": 1}, {**ONE_H100, "NVIDIA A100-SXM4-80GB": 1}])
def test_compute_of_unknown_or_mixed_gpus_is_not_guessed(ledger: Path, gpus: dict[str, int]) -> None:
    done = card.compute(msgspec.structs.replace(row(ledger), gpus=gpus), Data())
    assert (done.flop, done.method) == (None, "not known")


def test_a_card(ledger: Path) -> None:
    document = card.card(row(ledger), Data(), "ledger x")
    assert json.loads(card.as_json(document)) == document
    assert document["time"]["hours"] == pytest.approx(2.0)
    assert document["hardware"]["gpus"] == [{"model": "NVIDIA H100 80GB HBM3", "count": 1}]
    assert document["energy"]["kwh"] == pytest.approx(0.92)
    assert document["cost"]["EUR"]["idle"] == pytest.approx(3.03)
    text = card.as_markdown(document)
    assert "| Training data, tokens | not known |" in text
    assert "| Energy of the computers | 0.920 kWh |" in text
    assert len({line.replace("\\|", "").count("|") for line in text.splitlines()}) == 1


def test_a_card_says_whose_tokens_it_has(ledger: Path) -> None:
    document = card.card(row(ledger), Data(1e9, 1e10, of_period=True), "server x")
    assert document["data"] == {"tokens": 1e9, "tokens_of": "period"}
    assert "| Tokens in the period | 1000000000 |" in card.as_markdown(document)


def test_the_command_gives_each_form(ledger: Path) -> None:
    for form in commands.JOB_FORMATS:
        assert commands.job(Source(ledger), "slurm/1", form, (0.0, 1.0), Data(), SystemClock())
