"""Puts batches together until a commit writes them, within a bound.

A ledger that cannot be written for days must cost neither the memory of the node nor what was measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from clusterwatt.attribution.entries import NOBODY, Amounts, Batch, Entry, JobRecord
from clusterwatt.ledger.state import Payload
from clusterwatt.ledger.totals import COMPONENTS, METHODS

MAX_ENTRIES = 20_000  # about 12 MB
MAX_JOBS = 10_000


class Loss(msgspec.Struct, frozen=True):
    """What the bound cost: hours that were put together, and jobs whose amounts went to nobody."""

    hours: int = 0
    jobs: int = 0


def add(payload: Payload, batch: Batch) -> None:
    """Add a batch; the payload owns its amounts afterwards."""
    entries = payload.hours.setdefault(batch.hour_s, {})
    for entry, amounts in batch.entries.items():
        _add(entries, entry, amounts)
    payload.wall_s, payload.boot_id = batch.wall_s, batch.boot_id
    payload.measured_joules += batch.measured_joules
    payload.unobserved_seconds += batch.unobserved_seconds
    payload.jobs.update((record.job.job_id, record) for record in batch.jobs)
    payload.baselines.update(batch.baselines)


def of_known_kinds(batch: Batch) -> tuple[Batch, Sequence[Entry]]:
    """The batch, and those of its entries whose component or method has no column: renamed, sums stay."""
    wrong = [entry for entry, amounts in batch.entries.items() if not _is_known(entry, amounts)]
    if not wrong:
        return batch, ()
    entries: dict[Entry, Amounts] = {}
    for entry, amounts in batch.entries.items():
        _add(entries, entry if _is_known(entry, amounts) else _renamed(entry), amounts)
    return msgspec.structs.replace(batch, entries=entries), wrong


def joined(older: Payload, newer: Payload) -> Payload:
    """Both in one; where they speak of the same thing, the newer has the last word."""
    for hour_s, entries in newer.hours.items():
        there = older.hours.setdefault(hour_s, {})
        for entry, amounts in entries.items():
            _add(there, entry, amounts)
    if newer.wall_s:
        older.wall_s, older.boot_id = newer.wall_s, newer.boot_id
    older.measured_joules += newer.measured_joules
    older.unobserved_seconds += newer.unobserved_seconds
    older.jobs.update(newer.jobs)
    older.baselines.update(newer.baselines)
    return older


def bound(payload: Payload, max_entries: int = MAX_ENTRIES, max_jobs: int = MAX_JOBS) -> Loss:
    """Bring a payload within its bound: first hours become coarse, then the oldest jobs become nobody's.

    Sums stay what they are.
    """
    loss = Loss()
    if sum(map(len, payload.hours.values())) > max_entries and len(payload.hours) > 1:
        loss = Loss(hours=len(payload.hours) - 1)
        last_s = max(payload.hours)
        whole: dict[Entry, Amounts] = {}
        for hour_s in sorted(payload.hours):
            for entry, amounts in payload.hours[hour_s].items():
                _add(whole, entry, amounts)
        payload.hours = {last_s: whole}
    count = sum(map(len, payload.hours.values()))
    if count <= max_entries and len(payload.jobs) <= max_jobs:
        return loss
    named = {record.job.job_id: record for record in payload.jobs.values()}
    held = {entry.job_id for entries in payload.hours.values() for entry in entries} - {NOBODY}
    oldest = sorted(held | set(named), key=lambda job_id: _last_seen_s(named.get(job_id)))
    # Half of the jobs at once: sorting at every tick would cost more than it saves.
    gone = set(oldest[: (len(oldest) + 1) // 2])
    for hour_s, entries in payload.hours.items():
        kept: dict[Entry, Amounts] = {}
        for entry, amounts in entries.items():
            _add(kept, _of_nobody(entry) if entry.job_id in gone else entry, amounts)
        payload.hours[hour_s] = kept
    for job_id in gone:
        payload.jobs.pop(job_id, None)
    return Loss(loss.hours, len(gone))


def entries(payload: Payload) -> Iterable[tuple[Entry, Amounts]]:
    """Every entry of every hour."""
    return (pair for of_hour in payload.hours.values() for pair in of_hour.items())


def _add(there: dict[Entry, Amounts], entry: Entry, amounts: Amounts) -> None:
    known = there.get(entry)
    if known is None:
        there[entry] = msgspec.structs.replace(amounts)
    else:
        known.add(amounts)


def _is_known(entry: Entry, amounts: Amounts) -> bool:
    without_energy = entry.method == "" and amounts.joules is None
    return entry.component in COMPONENTS and (entry.method in METHODS or without_energy)


def _renamed(entry: Entry) -> Entry:
    component = entry.component if entry.component in COMPONENTS else "other"
    method = entry.method if entry.method in METHODS else "estimated"
    return msgspec.structs.replace(entry, component=component, method=method)


def _of_nobody(entry: Entry) -> Entry:
    return msgspec.structs.replace(entry, job_id=NOBODY, account="", device="", gpu_name="")


def _last_seen_s(record: JobRecord | None) -> float:
    return record.last_seen_s if record is not None else 0.0
