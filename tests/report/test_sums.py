"""Whatever was booked, lines and the rest are the total, in every form that keeps all digits."""

from __future__ import annotations

import csv
import io
import json
from math import fsum

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterwatt.attribution.entries import JobRecord
from clusterwatt.ledger.report import Cost, UsageRow
from clusterwatt.ledger.totals import COLUMNS, Totals
from clusterwatt.readings.work import Job
from clusterwatt.report import formats, lines

AMOUNT = st.none() | st.floats(min_value=0, max_value=1e12)
AMOUNTS = st.lists(AMOUNT, min_size=len(COLUMNS), max_size=len(COLUMNS))


@st.composite
def rows(draw: st.DrawFn, key: str) -> UsageRow:
    totals = Totals(*draw(AMOUNTS))
    totals.energy_cost = totals.gpu_cost = totals.idle_cost = None  # money is in costs, by currency
    seconds = totals.gpu_seconds or 0.0
    totals.idle_gpu_seconds = draw(st.none() | st.floats(0, 1).map(lambda share: share * seconds))
    currencies = draw(st.lists(st.sampled_from(["EUR", "USD"]), unique=True))
    costs = {currency: Cost(draw(AMOUNT), draw(AMOUNT), draw(AMOUNT)) for currency in currencies}
    name = draw(st.text(max_size=20))
    record = JobRecord(Job(key, "slurm", "batch", name=name), 1.0, 2.0)
    return UsageRow(key=key, jobs=1, totals=totals, costs=costs, record=record, gpus={})


@settings(max_examples=40)
@given(st.data())
def test_sums_close(data: st.DataObject) -> None:
    jobs = [data.draw(rows(f"slurm/{number}")) for number in range(data.draw(st.integers(0, 3)))]
    rest = msgspec.structs.replace(data.draw(rows("")), jobs=0, record=None)
    report = lines.report("job", "ledger", (0.0, 1.0), jobs, rest)
    document = json.loads(formats.as_json(report))
    header, *written = csv.reader(io.StringIO(formats.as_csv(report), newline=""))
    assert len(written) == len(jobs) + 2
    for number, name in enumerate(header):
        if not name.endswith(("_hours", "_kwh", "_kg", "_EUR", "_USD")):
            continue
        parts = [*(line[name] for line in document["lines"]), document["unattributed"][name]]
        total = document["total"][name]
        known = [part for part in parts if part is not None]
        assert (total is None) == (not known)
        if known:
            assert total == pytest.approx(fsum(known), rel=1e-9, abs=1e-290)  # subnormal numbers round
        assert [float(row[number]) if row[number] else None for row in written] == [*parts, total]
    for form in ("table", "markdown", "html"):
        assert formats.FORMATS[form](report)
