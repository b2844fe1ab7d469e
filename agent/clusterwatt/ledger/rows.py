"""Rows of the ledger's tables: read into memory, and written from it."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import msgspec

from clusterwatt.attribution.entries import NOBODY, Baseline, Entry, Held, JobRecord
from clusterwatt.ledger.state import AccountTotals, Change, JobRows, NodeRow, Payload, State, account_of
from clusterwatt.ledger.totals import COLUMNS, Totals
from clusterwatt.readings.work import Job

KNOWN_ENTRIES = 20_000
PRUNED_JOBS = 2_000
RECOVERED_JOBS = 1_000
SILENT_S = 7 * 86_400.0  # a device that was not read for longer is not expected back

JOB_COLUMNS = (
    "job_id", "scheduler", "kind", "name", "user", "uid", "account", "partition", "queue", "array_job",
    "array_task", "k8s_namespace", "k8s_owner", "k8s_owner_kind", "started_s", "exempt",
)  # fmt: skip
AMOUNTS = (
    "gpu_seconds", "unobserved_seconds", "observed_seconds", "activity_seconds", "tensor_observed_seconds",
    "tensor_seconds", "joules", "carbon_grams", "energy_cost", "gpu_cost",
)  # fmt: skip


class Rows:
    """Reads and writes rows over one connection; transactions are its user's."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.forget()

    def forget(self) -> None:
        """Forget numbers of rows: those that were rolled back or removed may be given to others."""
        self._jobs: dict[str, int] = {NOBODY: 0}
        self._entries: dict[Entry, int] = {}

    # --- Into memory -----------------------------------------------------------------------------------

    def state(self, month: str, job_ids: Iterable[str]) -> State:
        """What the page shows at the start: the node, nobody, these jobs, every account, and one month."""
        accounts = self.connection.execute(
            "SELECT account, currency, joules, carbon_grams, energy_cost, gpu_cost FROM account"
        )
        return State(
            node=self._node(),
            jobs={job_id: self.of_job(job_id) for job_id in (NOBODY, *job_ids)},
            accounts={
                (account, currency): AccountTotals(*columns) for account, currency, *columns in accounts
            },
            months={month: self.of_month(month)},
        )

    def baselines(self) -> dict[str, Baseline]:
        """Where the books stand, by device."""
        return {
            device: Baseline(
                counter_joules=joules,
                read_wall_s=read_s,
                signal=signal,
                held=tuple(
                    Held(*one) for one in msgspec.json.decode(held, type=list[tuple[str, str, float]])
                ),
            )
            for device, joules, read_s, signal, held in self.connection.execute(
                "SELECT device, counter_joules, read_s, signal, held FROM baseline"
            )
        }

    def not_ended(self) -> tuple[JobRecord, ...]:
        """Jobs whose end nobody has seen; of very many, those that were seen last."""
        names = ", ".join(JOB_COLUMNS)
        found = self.connection.execute(
            f"SELECT first_seen_s, last_seen_s, {names} FROM job "
            "WHERE number <> 0 AND ended_s IS NULL AND last_seen_s IS NOT NULL "
            "ORDER BY last_seen_s DESC LIMIT ?",
            (RECOVERED_JOBS,),
        )
        return tuple(
            JobRecord(_job(dict(zip(JOB_COLUMNS, columns, strict=True))), first_s, last_s)
            for first_s, last_s, *columns in found
        )

    def _node(self) -> NodeRow:
        return NodeRow(
            *self.connection.execute(
                "SELECT commits, committed_s, boot_id, unobserved_seconds, measured_joules FROM node"
            ).fetchone()
        )

    def of_job(self, job_id: str) -> JobRows:
        """Totals of a job; nothing for one that is not known."""
        return {
            (account, currency): Totals(*columns)
            for account, currency, *columns in self.connection.execute(
                f"SELECT total.account, currency, {', '.join(COLUMNS)} "
                "FROM job JOIN total ON total.job = job.number WHERE job_id = ?",
                (job_id,),
            )
        }

    def of_month(self, month: str) -> Mapping[tuple[str, str], float]:
        """Money of a month, by account and currency."""
        return {
            (account, currency): cost
            for account, currency, cost in self.connection.execute(
                "SELECT account, currency, cost FROM account_month WHERE month = ?", (month,)
            )
        }

    def hours(self) -> tuple[int, int] | None:
        """The first and the last full hour in which anything is booked; None: nothing is."""
        first_s, last_s = self.connection.execute("SELECT MIN(hour_s), MAX(hour_s) FROM usage").fetchone()
        return None if first_s is None else (first_s, last_s)

    def bytes_used(self) -> int:
        """Bytes of the file that hold something."""
        ask = self.connection.execute
        pages, free, size = (
            ask(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    # --- From memory -----------------------------------------------------------------------------------

    def write(self, payload: Payload) -> None:
        """Write what was booked: identities, hours and baselines."""
        self._write_jobs(payload)
        self._write_usage(payload)
        self._write_baselines(payload.baselines)

    def _write_jobs(self, payload: Payload) -> None:
        for job_id in sorted(payload.job_ids()):
            self._number(job_id)
        self.connection.executemany(UPDATE_JOB, [_job_row(record) for record in payload.jobs.values()])
        hours: dict[str, list[int]] = {}
        for hour_s, entries in payload.hours.items():
            for job_id in {entry.job_id for entry in entries}:
                hours.setdefault(job_id, []).append(hour_s)
        self.connection.executemany(
            UPDATE_HOURS, [(min(of), max(of), self._jobs[job_id]) for job_id, of in hours.items()]
        )

    def _number(self, job_id: str) -> int:
        """Number of a job; one that is not known is added."""
        if job_id not in self._jobs:
            self.connection.execute("INSERT OR IGNORE INTO job (job_id) VALUES (?)", (job_id,))
            (self._jobs[job_id],) = self.connection.execute(
                "SELECT number FROM job WHERE job_id = ?", (job_id,)
            ).fetchone()
        return self._jobs[job_id]

    def _write_usage(self, payload: Payload) -> None:
        if len(self._entries) > KNOWN_ENTRIES:
            self._entries = {}
        rows = []
        for hour_s, entries in payload.hours.items():
            for entry, amounts in entries.items():
                number = self._entries.get(entry) or self._entry(entry)
                rows.append((hour_s, number, *(getattr(amounts, name) for name in AMOUNTS)))
        self.connection.executemany(UPSERT_USAGE, rows)

    def _entry(self, entry: Entry) -> int:
        """Number of an entry; a new one is added, and its device to those that the job has held."""
        job = self._jobs[entry.job_id]
        row = (
            job, account_of(entry), entry.device, entry.gpu_name, entry.component, entry.state, entry.method,
            entry.currency,
        )  # fmt: skip
        added = self.connection.execute(INSERT_ENTRY, row).rowcount
        (number,) = self.connection.execute(SELECT_ENTRY, row).fetchone()
        if added and entry.device and entry.job_id != NOBODY:
            gpus = dict(self.connection.execute(COUNT_GPUS, (job,)).fetchall())
            self.connection.execute(
                "UPDATE job SET gpus = ? WHERE number = ?", (msgspec.json.encode(gpus).decode(), job)
            )
        self._entries[entry] = number
        return int(number)

    def _write_baselines(self, baselines: Mapping[str, Baseline]) -> None:
        self.connection.executemany(
            "INSERT OR REPLACE INTO baseline VALUES (?, ?, ?, ?, ?)",
            [
                (
                    device,
                    base.counter_joules,
                    base.read_wall_s,
                    base.signal,
                    msgspec.json.encode([(one.job_id, one.account, one.share) for one in base.held]).decode(),
                )
                for device, base in baselines.items()
            ],
        )
        if baselines:  # each new cut of a board into MIG instances leaves the UUIDs of the last behind
            newest_s = max(base.read_wall_s for base in baselines.values())
            self.connection.execute("DELETE FROM baseline WHERE read_s < ?", (newest_s - SILENT_S,))

    def write_totals(self, change: Change) -> None:
        """Write the totals that a payload has moved."""
        state = change.state
        for job_id in change.jobs:
            self._number(job_id)  # of a file that is new
        self.connection.executemany(
            REPLACE_TOTAL,
            [
                (self._jobs[job_id], *key, *msgspec.structs.astuple(state.jobs[job_id][key]))
                for job_id, keys in change.jobs.items()
                for key in keys
            ],
        )
        self.connection.executemany(
            "INSERT OR REPLACE INTO account VALUES (?, ?, ?, ?, ?, ?)",
            [(*key, *msgspec.structs.astuple(state.accounts[key])) for key in change.accounts],
        )
        self.connection.executemany(
            "INSERT OR REPLACE INTO account_month VALUES (?, ?, ?, ?)",
            [
                (month, account, currency, state.months[month][account, currency])
                for month, account, currency in change.months
            ],
        )
        node = state.node
        self.connection.execute(
            "UPDATE node SET commits = ?, committed_s = ?, boot_id = ?, unobserved_seconds = ?, "
            "measured_joules = ?",
            msgspec.structs.astuple(node),
        )

    def remove(self, before_s: int, live: Collection[str]) -> None:
        """Remove hours before one, and jobs that have nothing after it and are not `live`."""
        self.connection.execute("DELETE FROM usage WHERE hour_s < ?", (before_s,))
        self.connection.execute("UPDATE node SET kept_from_s = MAX(COALESCE(kept_from_s, 0), ?)", (before_s,))
        gone = [
            (number, job_id)
            for number, job_id in self.connection.execute(
                "SELECT number, job_id FROM job WHERE number <> 0 AND "
                "(last_hour_s < ? OR (last_hour_s IS NULL AND last_seen_s < ?)) ORDER BY last_hour_s LIMIT ?",
                (before_s, before_s, PRUNED_JOBS),
            )
            if job_id not in live
        ]
        numbers = [(number,) for number, _ in gone]
        for statement in (
            "DELETE FROM entry WHERE job = ?",
            "DELETE FROM total WHERE job = ?",
            "DELETE FROM job WHERE number = ?",
        ):
            self.connection.executemany(statement, numbers)
        if gone:
            self.forget()


def _job(columns: dict[str, Any]) -> Job:
    return Job(**{**columns, "exempt": bool(columns["exempt"])})


def _job_row(record: JobRecord) -> tuple[object, ...]:
    job: Job = record.job
    values = [getattr(job, name) for name in JOB_COLUMNS[1:]]
    return (*values, record.first_seen_s, record.last_seen_s, record.ended_s, job.job_id)


UPDATE_JOB = f"""
UPDATE job SET {", ".join(f"{name} = ?" for name in JOB_COLUMNS[1:])},
    first_seen_s = MIN(COALESCE(first_seen_s, 1e18), ?), last_seen_s = ?, ended_s = ?
WHERE job_id = ?
"""

UPDATE_HOURS = """
UPDATE job SET first_hour_s = MIN(COALESCE(first_hour_s, 1 << 60), ?),
    last_hour_s = MAX(COALESCE(last_hour_s, 0), ?)
WHERE number = ?
"""

ENTRY_COLUMNS = "job, account, device, gpu_name, component, state, method, currency"
INSERT_ENTRY = f"INSERT OR IGNORE INTO entry ({ENTRY_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
SELECT_ENTRY = "SELECT number FROM entry WHERE " + " AND ".join(
    f"{name} = ?" for name in ENTRY_COLUMNS.split(", ")
)
COUNT_GPUS = (
    "SELECT gpu_name, COUNT(DISTINCT device) FROM entry WHERE job = ? AND device <> '' GROUP BY gpu_name"
)


def _added(column: str) -> str:
    both = f"{column} + excluded.{column}"
    return f"{column} = COALESCE({both}, {column}, excluded.{column})"


UPSERT_USAGE = f"""
INSERT INTO usage (hour_s, entry, {", ".join(AMOUNTS)}) VALUES (?, ?{", ?" * len(AMOUNTS)})
ON CONFLICT (hour_s, entry) DO UPDATE SET {", ".join(map(_added, AMOUNTS))}
"""

REPLACE_TOTAL = (
    f"INSERT OR REPLACE INTO total (job, account, currency, {', '.join(COLUMNS)}) "
    f"VALUES (?, ?, ?{', ?' * len(COLUMNS)})"
)
