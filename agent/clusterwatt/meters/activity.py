"""The measure of use of each GPU, and the seconds that GPM measures: counters that begin with the agent.

Activity is the integral of the best signal that the GPU offers: SM activity from GPM, else utilisation. Which
one is chosen when the GPU is first seen and stays while a job holds the GPU: two signals in one bill could
not be compared. A signal that is lost is missed, never replaced, until it is back or the GPU is free.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping

from clusterwatt.catalog import CORE, FULL, STANDARD, Table
from clusterwatt.clock import GAP_INTERVALS
from clusterwatt.meters.energy import Total
from clusterwatt.readings.base import Failure, Reading
from clusterwatt.readings.gpu import GpuGpm, GpuIntegrals, GpuUse
from clusterwatt.readings.gpu_links import GpuPcieTraffic
from clusterwatt.readings.gpu_measured import (
    GpuActive,
    GpuActivity,
    GpuActivitySignal,
    GpuBusy,
    GpuC2cTraffic,
    GpuPipeActive,
)

ACTIVITY = Table(GpuActivity, labels=("gpu", "uuid"))
SIGNAL = Table(GpuActivitySignal, labels=("gpu", "uuid", "signal"))
ACTIVE = Table(GpuActive, labels=("gpu", "uuid"))
PIPE = Table(GpuPipeActive, labels=("gpu", "uuid", "pipe"))
C2C = Table(GpuC2cTraffic, labels=("gpu", "uuid"))
METRICS = (
    ACTIVITY.counter(
        "gpu_activity_seconds_total",
        "The measure of use: seconds of full activity since the agent started, by the GPU's best signal.",
        "activity_seconds",
    ),
    SIGNAL.gauge(
        "gpu_activity_signal",
        "1: the signal behind the activity, sm (from GPM) or utilization; absent while the signal is lost.",
        "chosen",
        CORE,
    ),
    ACTIVE.counter(
        "gpu_sm_active_seconds_total",
        "Seconds in which SMs had at least one warp, averaged over the SMs.",
        "sm_active_seconds",
        STANDARD,
    ),
    ACTIVE.counter(
        "gpu_sm_occupancy_seconds_total",
        "Seconds of resident warps over the most that could be.",
        "sm_occupancy_seconds",
        STANDARD,
    ),
    ACTIVE.counter(
        "gpu_tensor_active_seconds_total",
        "Seconds in which tensor pipes were active.",
        "tensor_active_seconds",
        STANDARD,
    ),
    ACTIVE.counter(
        "gpu_dram_active_seconds_total",
        "Seconds in which the interface to device memory moved data.",
        "dram_active_seconds",
        STANDARD,
    ),
    ACTIVE.counter(
        "gpu_graphics_active_seconds_total",
        "Seconds in which the graphics and compute engine was busy.",
        "graphics_active_seconds",
        FULL,
    ),
    PIPE.counter(
        "gpu_pipe_active_seconds_total",
        "Seconds in which an arithmetic pipe was active, tensor pipes apart.",
        "active_seconds",
        FULL,
    ),
    C2C.counter(
        "gpu_c2c_receive_bytes_total",
        "Bytes that the GPU has received from the CPU of its superchip.",
        "receive_bytes",
        FULL,
    ),
    C2C.counter(
        "gpu_c2c_transmit_bytes_total",
        "Bytes that the GPU has sent to the CPU of its superchip.",
        "transmit_bytes",
        FULL,
    ),
)

SM, UTILIZATION = "sm", "utilization"
PIPES: Mapping[str, str] = {
    "fp64": "fp64_active_seconds",
    "fp32": "fp32_active_seconds",
    "fp16": "fp16_active_seconds",
    "integer": "integer_active_seconds",
}
SUMS = (
    "graphics_active_seconds",
    "sm_active_seconds",
    "sm_occupancy_seconds",
    "tensor_active_seconds",
    "dram_active_seconds",
    *PIPES.values(),
    "pcie_transmit_bytes",
    "pcie_receive_bytes",
    "c2c_transmit_bytes",
    "c2c_receive_bytes",
)

FAIR_CHANCE_INTERVALS = 10  # GPM needs two samples, and another process a moment to start


class GpuAccount:
    """What is known of one GPU's activity since the agent started."""

    def __init__(self, signal: str | None) -> None:
        self.signal = signal
        self.busy = Total()
        self.sums = {name: Total() for name in SUMS}
        self.stated: frozenset[str] = frozenset()  # sums that GPM states now
        self.driver_counts_pcie = False
        self.in_mig_mode = False
        self._offset_s = 0.0
        self._held_back = False  # some of the sums are not its activity
        self._since_s = float("-inf")
        self._read_s = float("-inf")
        self._watched_s = 0.0  # from here on the GPU has answered without a gap
        self._alive_s = {SM: float("-inf"), UTILIZATION: float("-inf")}
        self._without_gpm = False

    def take(
        self, now: GpuIntegrals, gpm: GpuGpm | None, use: GpuUse | None, every_s: float, *, counts: bool
    ) -> None:
        """Take new readings of the GPU; a repeated one must not come here.

        `counts`: whether what it did is its activity, and not that of its MIG instances.
        """
        before_s = self.activity_s
        if now.since_s != self._since_s or now.read_s - self._read_s > GAP_INTERVALS * every_s:
            self._watched_s = now.read_s
        self._since_s, self._read_s = now.since_s, now.read_s
        self.busy.add(now.busy_seconds, now.since_s)
        self.stated = frozenset()
        if gpm is not None:
            self._without_gpm = not gpm.offered
            sums = {name: getattr(gpm, name) for name in SUMS}
            for name, sum_ in sums.items():
                self.sums[name].add(sum_, gpm.since_s)
            self.stated = frozenset(name for name, sum_ in sums.items() if sum_ is not None)
        if "sm_active_seconds" in self.stated:
            self._alive_s[SM] = now.read_s
        if use is not None and use.utilization_ratio is not None and now.busy_seconds is not None:
            self._alive_s[UTILIZATION] = now.read_s
        if not counts:
            self._held_back = True
            self._offset_s -= self.activity_s - before_s

    def choose(self, every_s: float, *, free: bool) -> None:
        """Choose the signal, anew only while the GPU is known to be free."""
        if self.signal is not None and not free:
            return
        missing_s = self._read_s - max(self._watched_s, self._alive_s[SM])
        no_sm = self._without_gpm or missing_s > FAIR_CHANCE_INTERVALS * every_s
        best = SM if self.alive(SM, every_s) else UTILIZATION if no_sm else None
        if best is None or best == self.signal or not self.alive(best, every_s):
            return
        self.go_on_with(best)

    def go_on_with(self, signal: str) -> None:
        """Take another signal; the activity so far stays as it is."""
        so_far_s = self.activity_s if self.signal or self._held_back else None
        self.signal = signal
        if so_far_s is not None:
            self._offset_s += so_far_s - self.activity_s

    def alive(self, signal: str, every_s: float) -> bool:
        """Whether a signal was stated within three intervals; the host leaves out GPM sums that are older."""
        if signal == SM:
            return self._alive_s[SM] == self._read_s
        return self._read_s - self._alive_s[UTILIZATION] <= GAP_INTERVALS * every_s

    def misses(self, every_s: float) -> bool:
        """Whether the chosen signal is gone although the GPU has answered for long enough."""
        if self.signal is None or self.alive(self.signal, every_s):
            return False
        return self._read_s - self._watched_s > FAIR_CHANCE_INTERVALS * every_s

    @property
    def activity_s(self) -> float:
        """Seconds of activity so far."""
        total = self.sums["sm_active_seconds"] if self.signal == SM else self.busy
        return self._offset_s + (total.value or 0.0)


class ActivityMeter:
    """Turns what the driver host says of use into the agent's counters, by UUID."""

    def __init__(self) -> None:
        self._earlier: dict[str, str] = {}
        self._accounts: dict[str, GpuAccount] = {}
        self._newest_s: dict[str, float] = {}

    @property
    def chosen(self) -> dict[str, str]:
        """The signal of each GPU, for an agent that comes later."""
        return {uuid: account.signal for uuid, account in self._accounts.items() if account.signal}

    def go_on_with(self, chosen: Mapping[str, str]) -> None:
        """Take the signals that an earlier agent has chosen, by UUID, before anything is booked by others.

        Each stands from when it is first told.
        """
        for uuid, signal in chosen.items():
            if uuid in self._earlier:
                continue
            self._earlier[uuid] = signal
            account = self._accounts.get(uuid)
            if account is not None and account.signal != signal:
                account.go_on_with(signal)

    def measure(
        self,
        gpus: Iterable[GpuIntegrals],
        gpm: Iterable[GpuGpm],
        uses: Iterable[GpuUse],
        traffic: Iterable[GpuPcieTraffic],
        *,
        every_s: float,
        in_mig_mode: Collection[str] = (),
        instances: Collection[str] = (),
        held: Collection[str] | None = None,
    ) -> Iterator[Reading]:
        """Take what the host says now, yield the counters; a `Failure` for each signal that is lost.

        `held`: UUIDs of the GPUs that jobs hold; None when nobody knows, then any GPU may be held. A GPU in
        MIG mode has no activity of its own. `instances`: UUIDs of MIG instances. The driver states no
        utilization of theirs: they are busy while their graphics and compute engine is.
        """
        gpm_of = {reading.uuid: reading for reading in gpm}
        use_of = {reading.uuid: reading for reading in uses}
        counted = {reading.uuid for reading in traffic}
        for now in gpus:
            uuid = now.uuid
            account = self._accounts.get(uuid)
            if account is None:
                account = self._accounts[uuid] = GpuAccount(self._earlier.get(uuid))
            account.driver_counts_pcie |= uuid in counted
            mig = uuid in in_mig_mode
            if self._newest_s.get(uuid) != now.read_s:
                self._newest_s[uuid] = now.read_s
                account.take(now, gpm_of.get(uuid), use_of.get(uuid), every_s, counts=not mig)
                if not mig:
                    account.choose(every_s, free=held is not None and uuid not in held)
                if account.signal is not None and (mig or account.misses(every_s)):
                    yield Failure(
                        item=f"{uuid}/activity",
                        reason="signal_lost",
                        detail=f"no {account.signal} any more: the GPU has no activity until it is back",
                        ongoing=mig and account.in_mig_mode,  # somebody wanted it: it counts once
                    )
                account.in_mig_mode = mig
            if not mig and account.signal is not None and account.alive(account.signal, every_s):
                yield GpuActivity(gpu=now.gpu, uuid=uuid, activity_seconds=account.activity_s)
                yield GpuActivitySignal(gpu=now.gpu, uuid=uuid, signal=account.signal)
            if uuid in instances and "graphics_active_seconds" in account.stated:
                busy_s = account.sums["graphics_active_seconds"].value
                yield GpuBusy(gpu=now.gpu, uuid=uuid, busy_seconds=busy_s)
            yield from _units(now, account)


def _units(now: GpuIntegrals, account: GpuAccount) -> Iterator[Reading]:
    """What GPM measures beside the activity; nothing while it does not."""
    if not account.stated:
        return
    gpu, uuid = now.gpu, now.uuid
    value = {name: account.sums[name].value for name in account.stated}
    yield GpuActive(
        gpu=gpu,
        uuid=uuid,
        graphics_active_seconds=value.get("graphics_active_seconds"),
        sm_active_seconds=value.get("sm_active_seconds"),
        sm_occupancy_seconds=value.get("sm_occupancy_seconds"),
        tensor_active_seconds=value.get("tensor_active_seconds"),
        dram_active_seconds=value.get("dram_active_seconds"),
    )
    for pipe, name in PIPES.items():
        seconds = value.get(name)
        if seconds is not None:
            yield GpuPipeActive(gpu=gpu, uuid=uuid, pipe=pipe, active_seconds=seconds)
    received, sent = value.get("c2c_receive_bytes"), value.get("c2c_transmit_bytes")
    if received is not None or sent is not None:
        yield GpuC2cTraffic(gpu=gpu, uuid=uuid, receive_bytes=received, transmit_bytes=sent)
    received, sent = value.get("pcie_receive_bytes"), value.get("pcie_transmit_bytes")
    if not account.driver_counts_pcie and (received is not None or sent is not None):
        yield GpuPcieTraffic(gpu=gpu, uuid=uuid, receive_bytes=received, transmit_bytes=sent)
