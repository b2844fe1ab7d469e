"""The books: from what meters counted and sources said to entries that close.

Each joule, second and price of an interval is booked once, to a job or to nobody. What was measured is summed
up apart from that, so that the ledger can hold one against the other.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping

from clusterwatt.attribution.board import BoardBook
from clusterwatt.attribution.booking import Booking, Seen
from clusterwatt.attribution.entries import Amounts, Baseline, Batch, Entry, JobRecord
from clusterwatt.attribution.holders import Holding
from clusterwatt.attribution.host_parts import HostBooking, HostParts
from clusterwatt.attribution.idle import IdleRule
from clusterwatt.attribution.journal import Journal
from clusterwatt.attribution.rates import Rates
from clusterwatt.attribution.silence import Silence
from clusterwatt.attribution.states import States
from clusterwatt.attribution.words import Parts
from clusterwatt.config.model import Meters
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu import GpuIntegrals, GpuPowerLimit
from clusterwatt.readings.gpu_measured import GpuActive, GpuActivity, GpuActivitySignal, GpuEnergy

ESTIMATED = "estimated"


class Books:
    """Books of one node since the agent started. Pure: every time is given."""

    def __init__(self, settings: Meters, boot_id: str) -> None:
        self.settings = settings
        self._boot_id = boot_id
        self._boards: dict[str, BoardBook] = {}
        self._baselines: Mapping[str, Baseline] = {}
        self._host = HostParts()
        self._states = States()
        self._silence = Silence()
        self._journal = Journal(boot_id)
        self._signals: dict[str, str] = {}
        self._shown: list[tuple[str, str, bool]] = []
        self._away_since_s: float | None = None

    def recover(self, baselines: Mapping[str, Baseline], *, boot_id: str, wall_s: float) -> None:
        """Go on from the ledger: where its books stand, the boot they were written in, and when.

        Given once, before the first `take`, unless the ledger is new. After a reboot counters and holders of
        before mean nothing.
        """
        self._baselines = baselines if boot_id == self._boot_id else {}
        self._signals = {uuid: baseline.signal for uuid, baseline in baselines.items() if baseline.signal}
        self._away_since_s = wall_s

    def take(self, parts: Parts, holding: Holding, *, wall_s: float, now_s: float, every_s: float) -> None:
        """Book what the readings of this tick add; `every_s`: how often GPUs are read."""
        rates = Rates.of(parts, self.settings.pue)
        rule = IdleRule(self.settings.idle_below_ratio, self.settings.idle_window_seconds)
        self._shown = []
        self._count_silence(parts, wall_s=wall_s, now_s=now_s, every_s=every_s)
        for seen in self._boards_seen(parts, holding, wall_s=wall_s, now_s=now_s, every_s=every_s):
            board = seen.board
            book = self._boards.get(board.uuid)
            if book is None:
                mine = (board.uuid, *(unit.uuid for unit in board.units))
                earlier = {uuid: self._baselines[uuid] for uuid in mine if uuid in self._baselines}
                book = self._boards[board.uuid] = BoardBook(earlier)
            for booking in book.take(seen, rule):
                self._book_gpu(booking, board.name, rates, wall_s)
            self._journal.measured(wall_s, book.measured_joules)
            if not book.silent:
                units = [(unit.gpu, unit.uuid) for unit in board.units]
                shown = [(board.gpu, board.uuid), *units] if board.partitioned else units
                self._shown += [(gpu, uuid, book.has_energy) for gpu, uuid in shown]
        for host in self._host.take(parts, holding, now_s):
            self._book_host(host, holding, rates, wall_s)
        self._journal.measured(wall_s, self._host.measured_joules)
        known = {*holding.devices.boards, *holding.devices.units}
        self._states.keep(known)
        self._signals = {uuid: signal for uuid, signal in self._signals.items() if uuid in known or not known}

    def readings(self) -> Iterator[Reading]:
        """What became of each GPU that is measured now."""
        return self._states.readings(self._shown)

    def take_batches(self, wall_s: float, jobs: tuple[JobRecord, ...]) -> list[Batch]:
        """What has gathered since the last call, a batch for each full hour; begins anew."""
        baselines = {
            uuid: baseline
            for book in self._boards.values()
            for uuid, baseline in book.baselines(self._signals)
        }
        return self._journal.take(wall_s, jobs, baselines)

    def _count_silence(self, parts: Parts, *, wall_s: float, now_s: float, every_s: float) -> None:
        if self._away_since_s is not None:
            self._journal.unobserved(wall_s, max(0.0, wall_s - self._away_since_s))
            self._away_since_s = None
            if self._baselines:
                self._silence.begin(now_s)
        newest = max((reading.read_s for reading in parts.get(GpuIntegrals, ())), default=None)
        silent_s = self._silence.take(newest, now_s=now_s, every_s=every_s)
        if silent_s > 0:
            self._journal.unobserved(wall_s, silent_s)

    def _boards_seen(
        self, parts: Parts, holding: Holding, *, wall_s: float, now_s: float, every_s: float
    ) -> Iterator[Seen]:
        """Each board of the node with what is said of it."""
        integrals: dict[str, GpuIntegrals] = {each.uuid: each for each in parts.get(GpuIntegrals, ())}
        energies: defaultdict[str, tuple[GpuEnergy, ...]] = defaultdict(tuple)
        for energy in parts.get(GpuEnergy, ()):
            # A module's counter has a CPU in it, and the GPU's own energy stands beside it.
            if energy.scope == "gpu":
                energies[energy.uuid] += (energy,)
        limits = {
            limit.uuid: limit.limit_watts
            for limit in parts.get(GpuPowerLimit, ())
            if limit.limit in ("max", "enforced")
        }
        activity = {each.uuid: each.activity_seconds for each in parts.get(GpuActivity, ())}
        tensor = {
            each.uuid: each.tensor_active_seconds
            for each in parts.get(GpuActive, ())
            if each.tensor_active_seconds is not None
        }
        for signal in parts.get(GpuActivitySignal, ()):
            self._signals[signal.uuid] = signal.signal
        for uuid, board in holding.devices.boards.items():
            yield Seen(
                board=board,
                integrals=integrals.get(uuid),
                energies=energies[uuid],
                limit_watts=limits.get(uuid),
                held=holding.held,
                weights=holding.weights,
                activity=activity,
                tensor=tensor,
                now_s=now_s,
                wall_s=wall_s,
                every_s=every_s,
                settled=holding.settled,
            )

    def _book_gpu(self, booking: Booking, gpu_name: str, rates: Rates, wall_s: float) -> None:
        for currency, amounts in rates.priced_gpu(booking.amounts, gpu_name):
            if booking.live:
                self._states.add(booking.device, booking.state, currency, amounts)
            entry = Entry(
                job_id=booking.job_id,
                account=booking.account,
                device=booking.device,
                gpu_name=gpu_name,
                component="gpu",
                state=booking.state,
                method=booking.method,
                currency=currency,
            )
            self._journal.book(wall_s, entry, amounts)

    def _book_host(self, booking: HostBooking, holding: Holding, rates: Rates, wall_s: float) -> None:
        currency, amounts = rates.priced_host(Amounts(joules=booking.joules))
        job = holding.jobs.get(booking.job_id)
        entry = Entry(
            job_id=booking.job_id,
            account="" if job is None else job.account,
            device="",
            gpu_name="",
            component=booking.component,
            state="",
            method=ESTIMATED,
            currency=currency,
        )
        self._journal.book(wall_s, entry, amounts)
