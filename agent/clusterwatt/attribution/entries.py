"""What goes into the books: entries with their amounts, and the batch that one commit writes.

An entry is booked for an interval between two readings of a device (or of a part of the host). Amounts of
different entries are disjoint and add up to what was measured: no second is booked twice, no joule is lost.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from clusterwatt.readings.work import Job

NOBODY = ""  # the job id of what is not attributed


class Entry(msgspec.Struct, frozen=True):
    """What is booked apart from everything else within one commit.

    `job_id`: empty for nobody. `account`: the job's when it was booked. `device`: UUID of the GPU or MIG
    instance, empty for parts of the host. `gpu_name`: model of the board. `component`: gpu, cpu, dram, other.
    `state`: active, idle, free; empty for parts of the host. `method`: counter, integrated, estimated; empty
    where there is no energy. `currency`: empty where nothing has a price.
    """

    job_id: str
    account: str
    device: str
    gpu_name: str
    component: str
    state: str
    method: str
    currency: str


class Amounts(msgspec.Struct):
    """What was booked; seconds are times the share held. None: not known, so nothing may be concluded.

    `observed_seconds` is the part of `gpu_seconds` for which activity is known, `tensor_observed_seconds`
    that for which tensor activity is. `unobserved_seconds`: the job held the device, and nobody measured.
    """

    gpu_seconds: float = 0.0
    unobserved_seconds: float = 0.0
    observed_seconds: float = 0.0
    activity_seconds: float = 0.0
    tensor_observed_seconds: float = 0.0
    tensor_seconds: float = 0.0
    joules: float | None = None
    carbon_grams: float | None = None
    energy_cost: float | None = None
    gpu_cost: float | None = None

    def add(self, more: Amounts) -> None:
        """Add other amounts of the same entry."""
        self.gpu_seconds += more.gpu_seconds
        self.unobserved_seconds += more.unobserved_seconds
        self.observed_seconds += more.observed_seconds
        self.activity_seconds += more.activity_seconds
        self.tensor_observed_seconds += more.tensor_observed_seconds
        self.tensor_seconds += more.tensor_seconds
        self.joules = plus(self.joules, more.joules)
        self.carbon_grams = plus(self.carbon_grams, more.carbon_grams)
        self.energy_cost = plus(self.energy_cost, more.energy_cost)
        self.gpu_cost = plus(self.gpu_cost, more.gpu_cost)


def plus(one: float | None, other: float | None) -> float | None:
    """The sum of what is known; None while nothing is."""
    if one is None or other is None:
        return other if one is None else one
    return one + other


class Held(msgspec.Struct, frozen=True):
    """A job's share of a device, from 0 to 1; shares of one device sum to at most one."""

    job_id: str
    account: str
    share: float


class Baseline(msgspec.Struct, frozen=True):
    """Where the books stand for one device: what they were last booked up to.

    `counter_joules`: the driver's own energy counter, None where there is none. `read_wall_s`: Unix time of
    that reading. `signal`: the activity signal chosen for the GPU. `held`: who held it then.
    """

    counter_joules: float | None
    read_wall_s: float
    signal: str = ""
    held: tuple[Held, ...] = ()


class JobRecord(msgspec.Struct, frozen=True):
    """A job as the ledger keeps it: identity, first and last time it was seen; `ended_s` once it is over."""

    job: Job
    first_seen_s: float
    last_seen_s: float
    ended_s: float | None = None


class Batch(msgspec.Struct, frozen=True):
    """Everything that one transaction writes.

    `hour_s`: Unix time of the full hour (UTC) that the entries belong to; a batch never spans two.
    `measured_joules`: what the devices and parts of the host measured in the same time, summed up apart from
    the entries: the two must agree.
    """

    wall_s: float
    boot_id: str
    hour_s: int
    entries: Mapping[Entry, Amounts]
    measured_joules: float
    unobserved_seconds: float
    jobs: tuple[JobRecord, ...] = ()
    baselines: Mapping[str, Baseline] = msgspec.field(default_factory=dict)
