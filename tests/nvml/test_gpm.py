"""GPU performance monitoring of one GPU, with the real binding over a simulated library."""

from __future__ import annotations

import ctypes
from typing import Any

import pynvml
import pytest

from clusterwatt.collectors.gpu_gpm import FIELDS
from clusterwatt.nvml.errors import GenerationOver
from clusterwatt.nvml.gpm import Gpm, GpmTrouble, Means, Target
from clusterwatt.simulate.work import mean
from tests.nvml.drivers import Bench

SUPPORT, ALLOC, FREE = "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree"
SAMPLE, METRICS = "nvmlGpmSampleGet", "nvmlGpmMetricsGet"
SM, TENSOR, C2C_SENT, C2C_RECEIVED = 2, 5, 100, 101
LONGEST_S = 3.15


class Watch:
    """GPM of one simulated GPU, asked at each tick."""

    def __init__(self, bench: Bench, index: int = 0, *, instance: int | None = None) -> None:
        self.bench = bench
        device = bench.device(index)
        self.target = Target(device.uuid, device.gpu, device.handle, instance)
        self.gpm = Gpm(
            bench.session,
            bench.clock,
            metrics=(SM, TENSOR),
            extra=(C2C_SENT, C2C_RECEIVED),
            longest_s=LONGEST_S,
        )

    def tick(self, seconds: float = 1.0) -> Means | None:
        self.bench.clock.advance(seconds)
        return self.gpm.means(self.target)

    def told(self, seconds: float = 1.0) -> Means:
        means = self.tick(seconds)
        assert means is not None
        return means


def calls(bench: Bench, name: str) -> int:
    return bench.library.calls[name]


def test_the_second_sample_tells_what_was_done_since_the_first() -> None:
    bench = Bench().open()
    watch = Watch(bench)
    assert watch.tick() is None
    start_s = bench.clock.wall_s()
    means = watch.told(0.7)
    sm = mean(bench.library.gpu(0).signals.sm, start_s, bench.clock.wall_s())
    assert means.seconds == pytest.approx(0.7)
    assert means.values[SM] == pytest.approx(100 * sm)
    assert 0 < means.values[TENSOR] < means.values[SM]


def test_samples_closer_than_the_driver_allows_are_not_taken() -> None:
    watch = Watch(Bench().open())
    watch.tick()
    assert watch.tick(0.06) is None
    assert calls(watch.bench, SAMPLE) == 1
    assert watch.told(0.06).seconds == pytest.approx(0.12)


def test_two_buffers_are_allocated_once_kept_and_freed_at_the_end() -> None:
    watch = Watch(Bench().open())
    for _ in range(20):
        watch.tick()
    assert calls(watch.bench, ALLOC) == 2
    assert calls(watch.bench, FREE) == 0
    watch.gpm.close()
    assert calls(watch.bench, FREE) == 2
    watch.gpm.close()
    assert calls(watch.bench, FREE) == 2


def test_no_buffer_meets_two_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(gpus=3).open()
    owners: dict[int, set[int]] = {}
    raw_call = bench.session.calls.raw_call

    def spy(name: str, *arguments: Any) -> None:
        if name == SAMPLE:
            device, buffer = (ctypes.addressof(argument.contents) for argument in arguments)
            owners.setdefault(buffer, set()).add(device)
        raw_call(name, *arguments)

    monkeypatch.setattr(bench.session.calls, "raw_call", spy)
    watches = [Watch(bench, index) for index in range(3)]
    for _ in range(5):
        bench.clock.advance(1.0)
        for watch in watches:
            watch.tick(0.0)
    assert len(owners) == 6
    assert all(len(devices) == 1 for devices in owners.values())


@pytest.mark.parametrize("code", [3, 13, 25])
def test_a_driver_that_says_no_has_no_gpm_and_is_asked_once(code: int) -> None:
    watch = Watch(Bench().open())
    watch.bench.faults.fail(SUPPORT, code)
    assert [watch.tick() for _ in range(5)] == [None] * 5
    assert watch.gpm.offered is False
    assert calls(watch.bench, SUPPORT) == 1
    assert calls(watch.bench, ALLOC) == calls(watch.bench, SAMPLE) == 0


@pytest.mark.parametrize("profile", ["a100", "l40s", "t4", "rtx4080"])
def test_cards_before_hopper_have_none(profile: str) -> None:
    watch = Watch(Bench(profile).open())
    watch.tick()
    assert watch.gpm.offered is False


def test_a_driver_before_gpm_has_none() -> None:
    watch = Watch(Bench(driver_version="515.105.01").open())
    watch.tick()
    assert watch.gpm.offered is False


@pytest.mark.parametrize(("code", "reason"), [(999, "unknown"), (4, "permission"), (15, "lost")])
def test_a_question_that_fails_is_not_a_no(code: int, reason: str) -> None:
    watch = Watch(Bench().open())
    rule = watch.bench.faults.fail(SUPPORT, code)
    with pytest.raises(GpmTrouble) as caught:
        watch.tick()
    assert caught.value.reason == reason
    assert watch.gpm.offered is None
    watch.bench.faults.clear(rule)
    watch.tick()
    assert watch.told().values


@pytest.mark.parametrize("call", [SAMPLE, METRICS])
def test_what_fails_once_is_made_good_by_the_next_sample(call: str) -> None:
    bench = Bench().open()
    watch = Watch(bench)
    watch.tick()
    start_s = bench.clock.wall_s()
    bench.faults.fail(call, 999, calls=1)
    with pytest.raises(GpmTrouble):
        watch.tick()
    means = watch.told()
    assert means.seconds == pytest.approx(2.0)
    sm = mean(bench.library.gpu(0).signals.sm, start_s, bench.clock.wall_s())
    assert means.values[SM] == pytest.approx(100 * sm)


def test_nothing_is_told_of_a_gap() -> None:
    watch = Watch(Bench().open())
    watch.tick()
    assert watch.told(3.1).seconds == pytest.approx(3.1)
    assert watch.tick(3.2) is None
    assert watch.told(1.0).seconds == pytest.approx(1.0)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nan_is_no_value_and_costs_no_other(value: float) -> None:
    watch = Watch(Bench().open())
    watch.tick()
    watch.bench.faults.change(METRICS, value, field=SM)
    assert set(watch.told().values) == {TENSOR}


def test_a_metric_that_fails_is_named_and_costs_no_other() -> None:
    watch = Watch(Bench().open())
    watch.tick()
    watch.bench.faults.fail(METRICS, 999, field=SM)
    means = watch.told()
    assert set(means.values) == {TENSOR}
    assert f"metric {SM}" in means.failed


def test_a_card_without_c2c_is_asked_for_it_once() -> None:
    watch = Watch(Bench().open())
    watch.tick()
    assert set(watch.told().values) == {SM, TENSOR}
    asked = calls(watch.bench, METRICS)
    assert set(watch.told().values) == {SM, TENSOR}
    assert calls(watch.bench, METRICS) == asked + 1


def test_a_superchip_tells_its_c2c_with_the_rest() -> None:
    watch = Watch(Bench().open())
    watch.bench.faults.change(METRICS, 100.0, field=C2C_SENT)
    watch.tick()
    watch.tick()
    asked = calls(watch.bench, METRICS)
    assert watch.told().values[C2C_SENT] == 100.0
    assert calls(watch.bench, METRICS) == asked + 1


def test_a_driver_that_refuses_an_unknown_metric_whole_still_tells_the_others() -> None:
    watch = Watch(Bench().open())
    watch.tick()
    watch.bench.faults.fail(METRICS, 2, skip_calls=1, calls=1)  # the first request, then that for the extra
    assert set(watch.told().values) == {SM, TENSOR}
    assert set(watch.told().values) == {SM, TENSOR}


@pytest.mark.parametrize("code", [9, 18])
def test_a_generation_that_is_over_is_said(code: int) -> None:
    watch = Watch(Bench().open())
    watch.tick()
    watch.bench.faults.fail(SAMPLE, code)
    with pytest.raises(GenerationOver):
        watch.tick()


def test_a_mig_instance_is_sampled_by_its_id() -> None:
    bench = Bench().open()
    bench.library.configure_mig(0, ["3g.40gb", "1g.10gb"])
    first, second = bench.library.gpu(0).mig_devices
    watches = [Watch(bench, instance=device.instance) for device in (first, second)]
    for watch in watches:
        watch.tick(0.0)
    start_s = bench.clock.wall_s()
    bench.clock.advance(1.0)
    for watch, device in zip(watches, (first, second), strict=True):
        sm = mean(device.tenant.signals.sm, start_s, bench.clock.wall_s())
        assert watch.told(0.0).values[SM] == pytest.approx(100 * sm)


def test_an_instance_that_is_gone_is_no_value() -> None:
    bench = Bench().open()
    bench.library.configure_mig(0, ["3g.40gb"])
    watch = Watch(bench, instance=bench.library.gpu(0).mig_devices[0].instance)
    watch.tick()
    bench.library.configure_mig(0, None)
    with pytest.raises(GpmTrouble) as caught:
        watch.tick()
    assert caught.value.reason == "not_offered"


def test_metric_numbers_are_those_of_the_binding() -> None:
    """Some bindings have tuples in place of numbers: a comma too many (12.575 to 13.590)."""
    names = {
        1: "GRAPHICS_UTIL",
        2: "SM_UTIL",
        3: "SM_OCCUPANCY",
        4: "INTEGER_UTIL",
        5: "ANY_TENSOR_UTIL",
        10: "DRAM_BW_UTIL",
        11: "FP64_UTIL",
        12: "FP32_UTIL",
        13: "FP16_UTIL",
        20: "PCIE_TX_PER_SEC",
        21: "PCIE_RX_PER_SEC",
        100: "C2C_TOTAL_TX_PER_SEC",
        101: "C2C_TOTAL_RX_PER_SEC",
    }
    assert set(names) == set(FIELDS)
    for number, name in names.items():
        constant = getattr(pynvml, f"NVML_GPM_METRIC_{name}", number)
        assert (constant[0] if isinstance(constant, tuple) else constant) == number
