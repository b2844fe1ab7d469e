"""Reports of a ledger: what is said of each job, that sums close, and that no name does harm."""

from __future__ import annotations

import csv
import html.parser
import io
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from clusterwatt.clock import SystemClock
from clusterwatt.ledger.report import reader
from clusterwatt.report import cluster, commands, formats, lines
from clusterwatt.report.card import Data
from clusterwatt.report.commands import ReportError, Source
from tests.report.books import BEGIN_S, HOUR_S, NAME, entries

PERIOD = (BEGIN_S, BEGIN_S + 3 * HOUR_S)


def usage(ledger: Path, form: str, by: cluster.By = "job") -> str:
    return commands.usage(Source(ledger), *PERIOD, by, form, SystemClock())


def as_json(ledger: Path, by: cluster.By = "job") -> dict[str, Any]:
    document: dict[str, Any] = json.loads(usage(ledger, "json", by))
    document["lines"] = {line[by]: line for line in document["lines"]}
    return document


def test_what_a_job_used(ledger: Path) -> None:
    job = as_json(ledger)["lines"]["slurm/1"]
    assert job["gpu_hours"] == pytest.approx(2.0)
    assert job["active_gpu_hours"] == pytest.approx(1.0)
    assert job["idle_gpu_hours"] == pytest.approx(1.0)
    assert job["activity_ratio"] == pytest.approx(0.4)
    assert job["tensor_ratio"] == pytest.approx(0.2)
    assert job["energy_kwh"] == pytest.approx(0.82 + 0.1)
    assert job["energy_gpu_kwh"] == pytest.approx(0.82)
    assert job["energy_cpu_kwh"] == pytest.approx(0.1)
    assert job["energy_dram_kwh"] is None
    assert job["energy_counter_kwh"] == pytest.approx(0.82)
    assert job["idle_energy_kwh"] == pytest.approx(0.12)
    assert job["carbon_kg"] == pytest.approx(0.368)
    assert job["gpu_cost_EUR"] == pytest.approx(6.0)
    assert job["energy_cost_EUR"] == pytest.approx(0.205 + 0.025)
    assert job["cost_EUR"] == pytest.approx(6.23)
    assert job["idle_cost_EUR"] == pytest.approx(3.0 + 0.03)
    assert job["coverage_ratio"] == 1.0
    assert job["energy_methods"] == "counter 89 %, estimated 11 %"
    assert (job["user"], job["account"], job["started"]) == ("ann", "physics", "2026-11-30T13:00:00+01:00")


def test_what_was_not_seen_is_told(ledger: Path) -> None:
    assert as_json(ledger)["lines"]["slurm/2"]["coverage_ratio"] == pytest.approx(2.0 / 2.5)


@pytest.mark.parametrize("by", ["job", "user", "account", "namespace"])
def test_sums_close(ledger: Path, by: cluster.By) -> None:
    """Lines and the rest are the total, and the total is what was measured."""
    document = as_json(ledger, by)
    parts = [*document["lines"].values(), document["unattributed"]]
    for name, total in document["total"].items():
        if name.endswith(("_hours", "_kwh", "_kg", "_EUR")):
            known = [part[name] for part in parts if part[name] is not None]
            assert total == (pytest.approx(sum(known), rel=1e-12) if known else None), name
    measured = entries().values()
    total = document["total"]
    assert total["energy_kwh"] == pytest.approx(
        sum(each.joules or 0.0 for each in measured) / 3.6e6, rel=1e-9
    )
    assert total["gpu_hours"] == pytest.approx(6.0)
    assert total["active_gpu_hours"] == pytest.approx(3.0)  # a free GPU is neither
    assert document["unattributed"]["active_gpu_hours"] == 0.0
    with reader(ledger) as books:
        info = books.info()
    assert total["energy_kwh"] == pytest.approx(info.measured_joules / 3.6e6, rel=1e-9)


def test_a_table(ledger: Path) -> None:
    text = usage(ledger, "table")
    assert text.splitlines()[0] == "2026-11-30T13:00+01:00 to 2026-11-30T16:00+01:00, by job"
    assert "\x1b" not in text
    (job,) = (line for line in text.splitlines() if line.startswith("slurm/1"))
    for word in ("train", "ann", "2.00", "1.00", "40.0", "20.0", "0.920", "0.368", "6.23", "3.03", "100.0"):
        assert word in job.split(), word
    assert text.splitlines()[-1].startswith("total")


@pytest.mark.parametrize("by", ["job", "user"])
def test_lines_that_are_left_out_are_one_line_and_sums_close(ledger: Path, by: cluster.By) -> None:
    def asked(form: str, limit: int | None) -> str:
        return commands.usage(Source(ledger), *PERIOD, by, form, SystemClock(), limit=limit)

    every, largest = (json.loads(asked("json", limit)) for limit in (None, 1))
    assert len(every["lines"]) == 2
    assert every["others"] is None
    assert largest["lines"] == every["lines"][:1]
    assert largest["others"] == {**largest["others"], **amounts_of(every["lines"][1]), by: "1 more"}
    for part in ("unattributed", "total"):
        assert amounts_of(largest[part]) == pytest.approx(amounts_of(every[part]))
    last = ["1 more", "unattributed", "total"]
    assert [row.split(",")[0] for row in asked("csv", 1).splitlines()[2:]] == last
    for form in ("table", "markdown", "html"):
        text = asked(form, 1)
        assert [text.index(label) for label in last] == sorted(text.index(label) for label in last)
        assert " more" not in asked(form, 2)


def amounts_of(line: dict[str, Any]) -> dict[str, float]:
    return {name: cell for name, cell in line.items() if isinstance(cell, float)}


def test_people_get_the_largest_jobs_and_programs_get_all(
    ledger: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "JOBS_FOR_PEOPLE", 1)
    for form in formats.FORMATS:
        assert ("1 more" in usage(ledger, form)) == (form in {"table", "markdown", "html"})
        assert "1 more" not in usage(ledger, form, "user")  # a bill has everybody on it


def test_an_account_that_is_named_as_the_rest_is_told_apart(ledger: Path) -> None:
    with reader(ledger) as books:
        (row, *_), rest = books.usage(*PERIOD, "account"), books.unattributed(*PERIOD)
    named = msgspec.structs.replace(row, key="unattributed")
    report = lines.report("account", "", PERIOD, [named], rest)
    for form in (formats.table, formats.as_csv, formats.markdown):
        rows = form(report).splitlines()
        assert sum("unattributed" in line for line in rows) == 2
        assert sum('"unattributed"' in line or '""unattributed""' in line for line in rows) == 1
    assert json.loads(formats.as_json(report))["lines"][0]["account"] == "unattributed"


def test_csv_is_rfc_4180_and_no_formula(ledger: Path) -> None:
    text = usage(ledger, "csv")
    assert text.count("\r\n") == text.count("\n") == 5
    header, *rows = csv.reader(io.StringIO(text, newline=""))
    found = {row[0]: dict(zip(header, row, strict=True)) for row in rows}
    assert len(set(header)) == len(header)
    assert found["slurm/2"]["name"] == "'" + NAME.replace("\x1b", "\\x1b")
    assert float(found["slurm/1"]["cost_EUR"]) == pytest.approx(6.23)
    assert found["slurm/1"]["energy_dram_kwh"] == ""
    assert list(found)[-2:] == ["unattributed", "total"]


class Page(html.parser.HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.tags: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes.update(name for name, _ in attrs)


def test_html_needs_nothing_else_and_runs_nothing(ledger: Path) -> None:
    page = Page()
    text = usage(ledger, "html")
    page.feed(text)
    assert "script" not in page.tags
    assert "b" not in page.tags  # of the job's name
    assert not {name for name in page.attributes if name.startswith("on") or name in {"src", "href"}}
    assert "&lt;b&gt;" in text
    assert "http" not in text.replace("http-equiv", "")


def test_markdown_keeps_its_columns_whatever_a_job_is_called(ledger: Path) -> None:
    text = usage(ledger, "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in rows}) == 1
    assert "\\<b\\>" in text


def test_jobs_are_listed_with_their_whole_lives(ledger: Path) -> None:
    text = commands.jobs(Source(ledger), running=False, limit=9, form="table", clock=SystemClock())
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["slurm/2", "slurm/1"]
    assert "2026-11-30T13:00+01:00  2026-11-30T15:00+01:00" in text.splitlines()[2]
    text = commands.jobs(Source(ledger), running=True, limit=9, form="table", clock=SystemClock())
    assert [line.split()[0] for line in text.splitlines()[1:]] == ["slurm/2"]


def test_two_currencies_are_never_added(ledger: Path) -> None:
    with reader(ledger) as books:
        rows = books.usage(*PERIOD)
    dollars = msgspec.structs.replace(rows[0], key="x", costs={"USD": rows[0].costs["EUR"]})
    document = json.loads(formats.as_json(lines.report("job", "", PERIOD, [*rows, dollars])))
    assert document["currencies"] == ["EUR", "USD"]
    assert document["total"]["cost_EUR"] == pytest.approx(
        sum(row["cost_EUR"] or 0 for row in document["lines"])
    )
    assert document["total"]["cost_USD"] == pytest.approx(document["lines"][-1]["cost_USD"])


def test_what_cannot_be_reported_is_one_line(ledger: Path, tmp_path: Path) -> None:
    clock = SystemClock()
    with pytest.raises(ReportError, match="does not know training runs: ask a server with --prometheus URL"):
        usage(ledger, "table", "run")
    with pytest.raises(ReportError, match="there is no ledger"):
        usage(tmp_path / "none.db", "table")
    with pytest.raises(ReportError, match=r"does not know 1: did you mean slurm/1\?"):
        commands.job(Source(ledger), "1", "receipt", PERIOD, Data(), clock)
    with pytest.raises(ReportError, match="does not know : `clusterwatt jobs`"):
        commands.job(Source(ledger), "", "receipt", PERIOD, Data(), clock)


def test_a_period_without_jobs_is_empty_and_right(ledger: Path) -> None:
    text = commands.usage(Source(ledger), 0.0, 3_600.0, "job", "json", SystemClock())
    assert json.loads(text)["lines"] == []
    for form in formats.FORMATS:
        assert commands.usage(Source(ledger), 0.0, 3_600.0, "user", form, SystemClock())


@pytest.mark.parametrize(
    ("name", "cell"),
    [
        ("=1+1", "'=1+1"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1+1", "'\\t=1+1"),
        ("\r=1+1", "'\\r=1+1"),
        ("a=b", "a=b"),
        ('say "hi", twice', 'say "hi", twice'),
        ("two\nlines", "two\\nlines"),
        ("nul\0", "nul\\x00"),
    ],
)
def test_names_in_csv(ledger: Path, name: str, cell: str) -> None:
    with reader(ledger) as books:
        row = books.usage(*PERIOD)[0]
    assert row.record is not None
    record = msgspec.structs.replace(row.record, job=msgspec.structs.replace(row.record.job, name=name))
    text = formats.as_csv(lines.report("job", "", PERIOD, [msgspec.structs.replace(row, record=record)]))
    _, found = csv.reader(io.StringIO(text, newline=""))
    assert found[1] == cell
