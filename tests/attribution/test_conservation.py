"""Whatever happens to a node, its books close: every joule, gram, coin and second is booked exactly once."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

import msgspec
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from clusterwatt.attribution.accounting import Accounting
from clusterwatt.attribution.entries import Amounts, Baseline, Batch, Entry
from clusterwatt.config.model import Config
from clusterwatt.meters.energy import GpuMeter
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuInfo, GpuIntegrals, GpuProcess
from clusterwatt.readings.gpu_measured import GpuActive, GpuActivity, GpuEnergy, GpuUp
from clusterwatt.readings.host import CpuTime, Memory, NodeEnergy
from clusterwatt.readings.work import (
    CarbonIntensity,
    Claim,
    ElectricityPrice,
    GpuPrice,
    GpuState,
    GpuStateCost,
    JobHostUse,
    JobMember,
    ProcessOwner,
    Scheduler,
)
from tests.attribution.node import HOUR, NAME, A, B, by_type, gpu, job, mig

CLOSE = 1e-9
PUE = 1.25
JOBS = [f"slurm/{number}" for number in range(1, 5)]
PARTED = [("3g.40gb",), ("1g.10gb", "2g.20gb"), ("1g.10gb",) * 7, ("3g.40gb", "4g.40gb")]
NEVER_NEGATIVE = Amounts.__struct_fields__
watts = st.floats(0.0, 1_000.0)
ratios = st.none() | st.floats(0.0, 1.0)


def close(one: float, other: float) -> bool:
    return math.isclose(one, other, rel_tol=CLOSE, abs_tol=1e-6)


class NodeLife(RuleBasedStateMachine):
    """One node: GPU A is whole or parted, GPU B has no energy counter."""

    def __init__(self) -> None:
        super().__init__()
        self.now_s, self.wall_s = 10_000.0, HOUR + 3_590.0  # an hour ends soon, at UTC midnight
        self.watts = {A: 400.0, B: 250.0}
        self.counter = {A: 7_000.0, B: 0.0}
        self.true_joules = {A: 0.0, B: 0.0}
        self.parts: tuple[str, ...] = ()
        self.activity: dict[str, float | None] = defaultdict(lambda: 0.5)
        self.active_s: defaultdict[str, float] = defaultdict(float)
        self.silent: set[str] = set()
        self.refuses = (False, False)  # the counter, power
        self.claims: dict[tuple[str, str, str], Claim] = {}
        self.processes: dict[int, tuple[str, str, float]] = {}
        self.answers = True
        self.grams_per_kwh: float | None = 400.0
        self.price: ElectricityPrice | None = ElectricityPrice("example", "", "EUR", 0.2)
        self.gpu_price: GpuPrice | None = GpuPrice(NAME, "example", "EUR", 2.0)
        self.cpu_seconds = 0.0
        self.uses: dict[str, float] = {}
        self.batches: list[Batch] = []  # committed
        self.pending: list[Batch] = []  # what a crash loses
        self.each_tick = False
        self.committed: dict[str, Baseline] = {}
        self.begin()

    def begin(self) -> None:
        """An agent begins; the driver host begins with it."""
        self.since_s, self.integral = self.now_s, {A: 0.0, B: 0.0}
        self.meter = GpuMeter()
        config = msgspec.structs.replace(
            Config(), meters=msgspec.structs.replace(Config().meters, pue=PUE, idle_window_seconds=5.0)
        )
        self.accounting = Accounting(config, "boot-1")
        self.node_joules = 0.0
        self.shown: dict[tuple[str, str, str], float] = {}
        self.energies: dict[str, float] = {}
        self.pending = []
        self.begun_s = self.now_s
        self.heard = False  # the source has answered
        self.booked_to: dict[str, float] = {}  # times of the readings up to which boards are booked
        self.seen: dict[str, float] = {}
        self.gap: set[str] = set()

    def infos(self) -> Iterator[GpuInfo]:
        yield gpu(A, "0")
        yield gpu(B, "1")
        yield from (mig(A, number, profile) for number, profile in enumerate(self.parts))

    def said(self) -> Iterator[Reading]:
        for info in self.infos():
            board = info.parent_uuid or info.uuid
            yield GpuUp(info.gpu, info.uuid, float(board not in self.silent))
            if board in self.silent:
                continue
            yield info
            if not info.parent_uuid:
                yield GpuIntegrals(
                    info.gpu,
                    info.uuid,
                    self.since_s,
                    self.now_s,
                    power_integral_joules=self.integral[info.uuid],
                    energy_counter_joules=self.counter[A] if info.uuid == A and not self.refuses[0] else None,
                )
            if self.activity[info.uuid] is not None:
                yield GpuActivity(info.gpu, info.uuid, self.active_s[info.uuid])
                yield GpuActive(info.gpu, info.uuid, tensor_active_seconds=self.active_s[info.uuid] / 2)
        yield Scheduler("slurm")
        if self.answers:
            yield from (job(each, f"acct{each[-1]}") for each in {c.job_id for c in self.claims.values()})
            yield from self.claims.values()
        for pid, (uuid, job_id, ratio) in self.processes.items():
            yield GpuProcess("0", uuid, pid, "compute", sm_ratio=ratio)
            yield ProcessOwner(pid, job_id)
        if self.grams_per_kwh is not None:
            yield CarbonIntensity("example", "WORLD", "average", self.grams_per_kwh, None)
        yield from (each for each in (self.price, self.gpu_price) if each is not None)
        yield NodeEnergy("cpu", "counter", self.node_joules)
        yield NodeEnergy("dram", "counter", self.node_joules / 4)
        yield CpuTime("user", self.cpu_seconds)
        yield CpuTime("idle", self.cpu_seconds * 3)
        yield Memory(total_bytes=100.0, available_bytes=40.0)
        for owner, seconds in self.uses.items():
            yield JobMember(owner, owner.replace("sluid", "slurm"))
            yield JobHostUse(owner, seconds, 10.0)

    def take(self) -> None:
        """A tick of the agent, and what it should have cost, reckoned apart."""
        said = list(self.said())
        integrals = [each for each in said if isinstance(each, GpuIntegrals)]
        measured = [each for each in self.meter.measure(integrals, ()) if not isinstance(each, Failure)]
        parts = by_type((*said, *measured))
        sources = {"slurm": self.answers, "process": True}
        readings = by_type(
            self.accounting.take(parts, sources, wall_s=self.wall_s, now_s=self.now_s, every_s=1.0)
        )
        self.energies.update({e.uuid: e.energy_joules for e in measured if isinstance(e, GpuEnergy)})
        self.check_live(readings)
        seconds = self.seconds_due()
        if self.each_tick:
            batches = self.accounting.take_batches(self.wall_s)
            self.check_money(batches)
            booked: defaultdict[str, float] = defaultdict(float)
            for entry, amounts in entries_of(batches):
                booked[board_of(entry)] += amounts.gpu_seconds
            for uuid in (A, B):
                assert close(booked[uuid], seconds.get(uuid, 0.0))
            self.pending += batches

    def seconds_due(self) -> dict[str, float]:
        """Seconds of each board that are to be booked now: those between readings that came in time."""
        due = {}
        self.heard |= self.answers
        settled = self.heard or self.now_s - self.begun_s >= 30.0
        for uuid in {A, B} - self.silent:
            if self.seen.get(uuid) == self.now_s:
                continue  # no new reading
            if uuid in self.seen and self.now_s - self.seen[uuid] > 3.15:
                self.gap.add(uuid)
            first = uuid not in self.seen
            self.seen[uuid] = self.now_s
            if not settled and not first:
                continue
            if not first and uuid not in self.gap:
                due[uuid] = self.now_s - self.booked_to[uuid]
            self.booked_to[uuid] = self.now_s
            self.gap.discard(uuid)
        for uuid in self.silent & set(self.seen):
            if self.now_s - self.seen[uuid] > 3.15:
                self.gap.add(uuid)
        return due

    def check_money(self, batches: list[Batch]) -> None:
        """Carbon and money of a tick, from what was measured in it and the rates of that instant."""
        joules = sum(batch.measured_joules for batch in batches)
        amounts = [amounts for _, amounts in entries_of(batches)]
        carbon = sum(each.carbon_grams or 0.0 for each in amounts)
        energy = sum(each.energy_cost or 0.0 for each in amounts)
        gpus = sum(each.gpu_cost or 0.0 for each in amounts)
        seconds = sum(each.gpu_seconds for each in amounts)
        kwh = joules / 3.6e6 * PUE
        included = self.gpu_price is not None and self.gpu_price.includes_power
        assert close(carbon, kwh * (self.grams_per_kwh or 0.0))
        assert close(energy, 0.0 if included or self.price is None else kwh * self.price.price_per_kwh)
        assert close(gpus, 0.0 if self.gpu_price is None else seconds / 3_600 * self.gpu_price.price_per_hour)

    def check_live(self, readings: dict[type[Reading], tuple[Any, ...]]) -> None:
        """Live counters never fall while an agent runs, and add up to the GPU's energy."""
        now: dict[tuple[str, str, str], float] = {}
        for state in readings.get(GpuState, ()):
            now[state.uuid, state.state, "s"] = state.state_seconds
            if state.energy_joules is not None:
                now[state.uuid, state.state, "J"] = state.energy_joules
        for cost in readings.get(GpuStateCost, ()):
            now[cost.uuid, cost.state, cost.currency] = cost.cost
        known = {info.uuid for info in self.infos()}
        self.shown = {key: value for key, value in self.shown.items() if key[0] in known}
        for key, value in now.items():
            assert value >= self.shown.get(key, 0.0) - 1e-9, key
        self.shown.update(now)
        if (B, "free", "J") in now and B not in self.silent:
            assert close(
                sum(v for k, v in now.items() if k[0] == B and k[2] == "J"), self.energies.get(B, 0.0)
            )

    def pass_time(self, seconds: float) -> None:
        self.now_s += seconds
        self.wall_s += seconds
        for uuid, power in self.watts.items():
            self.counter[uuid] += power * seconds
            self.true_joules[uuid] += power * seconds
            self.integral[uuid] += 0.0 if uuid in self.silent or self.refuses[1] else power * seconds
        for info in self.infos():
            self.active_s[info.uuid] += (self.activity[info.uuid] or 0.0) * seconds
        self.node_joules += 200.0 * seconds
        self.cpu_seconds += 8.0 * seconds
        for owner in self.uses:
            self.uses[owner] += 3.0 * seconds

    @initialize(each_tick=st.booleans())
    def first(self, each_tick: bool) -> None:
        self.each_tick = each_tick
        self.take()

    @rule(seconds=st.sampled_from([1.0, 1.0, 0.7, 2.9, 3.0, 3.3, 15.0, 4_000.0]), count=st.integers(1, 8))
    def ticks(self, seconds: float, count: int) -> None:
        for _ in range(count):
            self.pass_time(seconds)
            self.take()

    @rule()
    def the_page_is_published_again(self) -> None:
        self.take()  # GPUs may have answered since
        before = dict(self.shown)
        self.take()
        assert all(self.shown[key] == value for key, value in before.items() if key in self.shown)

    @rule(uuid=st.sampled_from([A, B]), power=watts, ratio=ratios)
    def work_changes(self, uuid: str, power: float, ratio: float | None) -> None:
        self.watts[uuid] = power
        for info in self.infos():
            if uuid in (info.uuid, info.parent_uuid):
                self.activity[info.uuid] = ratio

    @rule(job_id=st.sampled_from(JOBS), device=st.sampled_from([A, B, "MIG-0", "minor:1", "GPU-c"]))
    def job_arrives(self, job_id: str, device: str) -> None:
        name = f"MIG-00000000-{A[4:]}" if device == "MIG-0" else device
        for member in ("", "second") if device == B else ("",):
            self.claims[job_id, name, member] = Claim(job_id, name, "slurm", member)
        self.uses[job_id.replace("slurm", "sluid")] = 0.0

    @rule(job_id=st.sampled_from(JOBS))
    def job_ends(self, job_id: str) -> None:
        self.claims = {key: claim for key, claim in self.claims.items() if key[0] != job_id}
        self.uses.pop(job_id.replace("slurm", "sluid"), None)

    @rule(uuid=st.sampled_from([A, B]), job_id=st.sampled_from(JOBS), ratio=st.floats(0.0, 1.0))
    def process_works(self, uuid: str, job_id: str, ratio: float) -> None:
        self.processes[hash((uuid, job_id)) % 1_000] = (uuid, job_id, ratio)

    @rule(parts=st.sampled_from([(), *PARTED]))
    def board_is_parted(self, parts: tuple[str, ...]) -> None:
        self.parts = parts

    @rule(uuid=st.sampled_from([A, B]))
    def gpu_falls_silent(self, uuid: str) -> None:
        self.silent.add(uuid)

    @rule()
    def gpus_answer(self) -> None:
        self.silent.clear()

    @rule(counter=st.booleans(), power=st.booleans())
    def energy_is_refused_or_not(self, counter: bool, power: bool) -> None:
        self.refuses = counter, power

    @rule(answers=st.booleans())
    def source_is_silent_or_not(self, answers: bool) -> None:
        self.answers = answers

    @rule()
    def driver_is_loaded_anew(self) -> None:
        self.counter = dict.fromkeys(self.counter, 0.0)
        self.since_s, self.integral = self.now_s, {A: 0.0, B: 0.0}

    @rule(joules=st.floats(0.0, 5_000.0))
    def counter_steps_back(self, joules: float) -> None:
        self.counter[A] = max(0.0, self.counter[A] - joules)

    @rule(seconds=st.sampled_from([-3_600.0, -30.0, 30.0, 3_600.0, 86_400.0]))
    def clock_steps(self, seconds: float) -> None:
        self.wall_s += seconds

    @rule(
        grams_per_kwh=st.none() | st.floats(0.0, 1_000.0),
        price=st.none() | st.tuples(st.sampled_from(["EUR", "USD"]), st.floats(0.0, 1.0)),
        per_hour=st.none() | st.tuples(st.floats(0.0, 10.0), st.booleans()),
    )
    def prices_change(
        self,
        grams_per_kwh: float | None,
        price: tuple[str, float] | None,
        per_hour: tuple[float, bool] | None,
    ) -> None:
        self.grams_per_kwh = grams_per_kwh
        self.price = None if price is None else ElectricityPrice("example", "", *price)
        self.gpu_price = None if per_hour is None else GpuPrice(NAME, "example", "EUR", *per_hour)

    @rule()
    def commit(self) -> None:
        self.pending += self.accounting.take_batches(self.wall_s)
        for batch in self.pending:
            self.check_batch(batch)
            self.batches.append(batch)
            self.committed.update(batch.baselines)
        self.pending = []

    @rule(seconds=st.sampled_from([0.5, 5.0, 600.0]), same_boot=st.booleans(), killed=st.booleans())
    def agent_restarts(self, seconds: float, same_boot: bool, killed: bool) -> None:
        if not killed:
            self.commit()
        wall_then = self.batches[-1].wall_s if self.batches else self.wall_s
        had = bool(self.batches)
        self.pass_time(seconds)
        self.begin()
        if had:
            boot = "boot-1" if same_boot else "boot-0"
            self.accounting.recover(self.committed, boot_id=boot, wall_s=wall_then)
        self.take()

    def check_batch(self, batch: Batch) -> None:
        booked = sum(amounts.joules or 0.0 for amounts in batch.entries.values())
        assert close(booked, batch.measured_joules)
        assert batch.hour_s % 3_600 == 0
        for entry, amounts in batch.entries.items():
            for name in NEVER_NEGATIVE:
                assert (getattr(amounts, name) or 0.0) >= 0.0, (entry, name)
            assert (entry.state == "free") == (entry.job_id == "" and entry.component == "gpu")

    @invariant()
    def nothing_is_booked_that_was_not_used(self) -> None:
        booked: defaultdict[str, float] = defaultdict(float)
        for entry, amounts in entries_of(self.batches + self.pending):
            booked[board_of(entry)] += amounts.joules or 0.0
        for uuid in (A, B):
            assert booked[uuid] <= self.true_joules[uuid] * (1 + CLOSE) + 1e-6


def entries_of(batches: list[Batch]) -> Iterator[tuple[Entry, Amounts]]:
    for batch in batches:
        yield from batch.entries.items()


def board_of(entry: Entry) -> str:
    """The board of a device; empty for parts of the host."""
    return A if entry.device.startswith("MIG") else entry.device


NodeLife.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestNodeLife = NodeLife.TestCase
