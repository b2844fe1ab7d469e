"""PCIe, NVLink and the NVSwitch fabric."""

from __future__ import annotations

from typing import Any

import pynvml
import pytest

from clusterwatt.simulate.work import Flat, Signals, Tenant
from tests.collectors.cards import Series
from tests.collectors.gpus import Watch, page
from tests.nvml.drivers import Bench

FIELDS = "nvmlDeviceGetFieldValues"


def shown(watch: Watch, ticks: int = 15) -> dict[Series, float]:
    """The page once every part was read."""
    found = page(watch.tick(ticks))
    assert watch.failures == []
    return found


def of(found: dict[Series, float], family: str) -> dict[tuple[str, ...], float]:
    return {labels: value for (name, labels), value in found.items() if name == family}


class Talkative:
    """Every GPU sends over half of its NVLink and a tenth of its PCIe rate."""

    def tenant(self, board: int) -> Tenant:
        return Tenant(
            Signals(busy=Flat(1.0), sm=Flat(0.5), nvlink=Flat(0.5), pcie=Flat(0.1), capped=Flat(0.0))
        )


# --- PCIe ------------------------------------------------------------------------------------------------


def test_a_link_that_has_trained_narrow_shows_what_it_could_be() -> None:
    bench = Bench("h100", 1).open()
    health = bench.library.gpu(0).health
    health.pcie_width, health.pcie_replays = 8, 12
    health.pcie_errors = {173: 5, 180: 1, 169: 9}
    found = shown(Watch(bench))
    assert found["gpu_pcie_link_width", ()] == 8.0
    assert found["gpu_pcie_link_width_max", ()] == 16.0
    assert found["gpu_pcie_link_generation", ()] == 5.0
    assert found["gpu_pcie_link_generation_max", ()] == 5.0
    assert found["gpu_pcie_replays_total", ()] == 12.0
    assert found["gpu_pcie_errors_total", ("correctable",)] == 5.0
    assert found["gpu_pcie_errors_total", ("fatal",)] == 1.0
    assert found["gpu_pcie_errors_total", ("l0_to_recovery",)] == 9.0
    assert found["gpu_pcie_errors_total", ("bad_tlp",)] == 0.0


def test_names_of_pcie_errors_are_those_of_their_fields() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.pcie_errors = {
        pynvml.NVML_FI_DEV_PCIE_L0_TO_RECOVERY_COUNTER: 1,
        pynvml.NVML_FI_DEV_PCIE_COUNT_CORRECTABLE_ERRORS: 2,
        pynvml.NVML_FI_DEV_PCIE_COUNT_NAKS_RECEIVED: 3,
        pynvml.NVML_FI_DEV_PCIE_COUNT_RECEIVER_ERROR: 4,
        pynvml.NVML_FI_DEV_PCIE_COUNT_BAD_TLP: 5,
        pynvml.NVML_FI_DEV_PCIE_COUNT_NAKS_SENT: 6,
        pynvml.NVML_FI_DEV_PCIE_COUNT_BAD_DLLP: 7,
        pynvml.NVML_FI_DEV_PCIE_COUNT_NON_FATAL_ERROR: 8,
        pynvml.NVML_FI_DEV_PCIE_COUNT_FATAL_ERROR: 9,
        pynvml.NVML_FI_DEV_PCIE_COUNT_UNSUPPORTED_REQ: 10,
        pynvml.NVML_FI_DEV_PCIE_COUNT_LCRC_ERROR: 11,
    }
    names = of(shown(Watch(bench)), "gpu_pcie_errors_total")
    assert [name for (name,), _ in sorted(names.items(), key=lambda item: item[1])] == [
        "l0_to_recovery",
        "correctable",
        "nak_received",
        "receiver",
        "bad_tlp",
        "nak_sent",
        "bad_dllp",
        "non_fatal",
        "fatal",
        "unsupported_request",
        "lcrc",
    ]


def test_replays_come_from_the_call_where_the_field_is_missing() -> None:
    bench = Bench("h100", 1).open()
    bench.faults.fail(FIELDS, 3, field=94)
    bench.library.gpu(0).health.pcie_replays = 7
    assert shown(Watch(bench))["gpu_pcie_replays_total", ()] == 7.0


def test_pcie_bytes_are_fresh_at_every_tick_and_equal_to_the_driver() -> None:
    bench = Bench("h100", 1, work=Talkative()).open()
    watch = Watch(bench)
    watch.read()
    first, second = shown(watch, 1), shown(watch, 10)
    sent = second["gpu_pcie_transmit_bytes_total", ()] - first["gpu_pcie_transmit_bytes_total", ()]
    received = second["gpu_pcie_receive_bytes_total", ()] - first["gpu_pcie_receive_bytes_total", ()]
    assert sent == pytest.approx(10 * 0.1 * 16 * 3.938e9, rel=1e-6)  # PCIe 5: 3.938 GB/s a lane
    assert received == pytest.approx(sent / 2, rel=1e-6)


def test_a_byte_counter_that_wraps_is_left_out_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench("h100", 1, work=Talkative()).open()
    watch = Watch(bench)
    watch.read()
    rule = bench.faults.change(FIELDS, 4_000_000_000, field=197)
    watch.tick()
    bench.faults.clear(rule)
    bench.faults.change(FIELDS, 100, field=197)
    found = shown(watch)
    assert ("gpu_pcie_transmit_bytes_total", ()) not in found
    assert ("gpu_pcie_receive_bytes_total", ()) in found
    assert len([record for record in caplog.records if "PCIe byte counter 197" in record.message]) == 1


def test_bar1() -> None:
    bench = Bench("h200", 1).open()
    bench.faults.change("nvmlDeviceGetBAR1MemoryInfo", {"bar1Total": 262_144 << 20, "bar1Used": 1 << 20})
    found = shown(Watch(bench))
    assert found["gpu_bar1_total_bytes", ()] == 262_144 * 2**20
    assert found["gpu_bar1_used_bytes", ()] == 2**20


# --- NVLink ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("card", "links", "rate"), [("a100", 12, 25.0e9), ("h100", 18, 26.562e9)])
def test_nvlink_bytes_are_bytes_of_all_links_and_of_each(card: str, links: int, rate: float) -> None:
    """The driver counts KiB (nvml.h); an A100 link carries 25 GB/s each way, half of it is in use."""
    bench = Bench(card, 1, work=Talkative()).open()
    watch = Watch(bench)
    watch.read()
    first, second = shown(watch, 20), shown(watch, 100)
    for direction in ("receive", "transmit"):
        total = f"gpu_nvlink_{direction}_bytes_total"
        assert second[total, ()] - first[total, ()] == pytest.approx(100 * 0.5 * rate * links, rel=1e-6)
        each = f"gpu_nvlink_link_{direction}_bytes_total"
        assert len(of(second, each)) == links
        assert second[each, ("3",)] - first[each, ("3",)] == pytest.approx(100 * 0.5 * rate, rel=1e-6)


def test_nvlink_5_has_its_own_counters_of_bytes() -> None:
    bench = Bench("b200", 1, work=Talkative()).open()
    watch = Watch(bench)
    watch.read()
    first, second = shown(watch, 20), shown(watch, 100)
    total = "gpu_nvlink_receive_bytes_total"
    assert second[total, ()] - first[total, ()] == pytest.approx(100 * 0.5 * 53.125e9 * 18, rel=1e-6)


def test_a_link_that_is_down_is_missed() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.nvlink_down = {4, 17}
    found = shown(Watch(bench))
    up = of(found, "gpu_nvlink_up")
    assert {int(link) for (link,), state in up.items() if state == 0.0} == {4, 17}
    assert sum(up.values()) == 16.0
    assert found["gpu_nvlinks_expected", ()] == 18.0


@pytest.mark.parametrize("card", ["a100", "h100"])
def test_on_a_board_with_links_of_its_own_all_are_expected_even_if_all_are_down(card: str) -> None:
    """An A100 says so by its name (SXM), a Hopper by the fabric that it is in."""
    bench = Bench(card, 1).open()
    health = bench.library.gpu(0).health
    health.nvlink_down = set(range(18))
    health.fabric_state = 2  # in progress
    found = shown(Watch(bench))
    assert sum(of(found, "gpu_nvlink_up").values()) == found["gpu_nvlinks_up", ()] == 0.0
    assert found["gpu_nvlinks_expected", ()] == (12.0 if card == "a100" else 18.0)


@pytest.mark.parametrize(("bridged", "expected"), [(12, 12.0), (4, 4.0), (0, 0.0)])
def test_on_a_board_for_bridges_the_bridge_decides(bridged: int, expected: float) -> None:
    bench = Bench("h100", 1, names={0: b"NVIDIA H100 PCIe"}).open()
    health = bench.library.gpu(0).health
    health.fabric_state = 0  # not supported
    health.nvlink_down = set(range(bridged, 18))
    watch = Watch(bench)
    watch.read()
    assert shown(watch)["gpu_nvlinks_expected", ()] == expected
    health.nvlink_down = set(range(18))
    found = shown(watch)
    assert sum(of(found, "gpu_nvlink_up").values()) == found["gpu_nvlinks_up", ()] == 0.0
    assert found["gpu_nvlinks_expected", ()] == expected


@pytest.mark.parametrize(
    ("card", "kinds"),
    [
        ("a100", {"replay": "replay", "recovery": "recovery", "crc": "crc"}),
        ("h100", {"replay": "replay", "recovery": "recovery", "crc": "crc"}),
        ("b200", {"recovery": "recovery", "symbol": "symbol"}),
    ],
)
def test_nvlink_errors_by_link_and_in_all(card: str, kinds: dict[str, str]) -> None:
    bench = Bench(card, 1).open()
    errors = bench.library.gpu(0).health.nvlink_errors
    for place, kind in enumerate(kinds):
        errors[kind, 2] = 10 + place
        errors[kind, 5] = 100
    found = shown(Watch(bench))
    for place, (kind, name) in enumerate(kinds.items()):
        assert errors[kind, 2] == found["gpu_nvlink_link_errors_total", ("2", name)]
        assert found["gpu_nvlink_link_errors_total", ("5", name)] == 100.0
        assert found["gpu_nvlink_link_errors_total", ("0", name)] == 0.0
        assert found["gpu_nvlink_errors_total", (name,)] == 110.0 + place
    assert set(of(found, "gpu_nvlink_errors_total")) == {(name,) for name in kinds.values()}


def test_the_sum_does_not_step_back_when_a_link_stops_to_state_its_errors() -> None:
    bench = Bench("h100", 1).open()
    bench.library.gpu(0).health.nvlink_errors.update({("replay", link): 10 for link in range(18)})
    watch = Watch(bench)
    watch.read()
    assert shown(watch)["gpu_nvlink_errors_total", ("replay",)] == 180.0
    _refuse_link(7)
    bench.library.gpu(0).health.nvlink_errors["replay", 0] = 15
    found = shown(watch)
    assert found["gpu_nvlink_errors_total", ("replay",)] == 185.0
    assert ("gpu_nvlink_link_errors_total", ("7", "replay")) not in found
    assert ("gpu_nvlink_link_errors_total", ("8", "replay")) in found


def test_an_old_driver_states_errors_of_all_links_only() -> None:
    bench = Bench("a100", 1, driver_version="515.105.01").open()
    health = bench.library.gpu(0).health
    health.nvlink_errors = {("flit", 1): 1, ("crc", 2): 2, ("replay", 3): 4, ("recovery", 4): 8}
    health.nvlink_down = {9}
    found = shown(Watch(bench))
    assert found["gpu_nvlink_errors_total", ("crc",)] == 3.0
    assert found["gpu_nvlink_errors_total", ("replay",)] == 4.0
    assert found["gpu_nvlink_errors_total", ("recovery",)] == 8.0
    assert "gpu_nvlink_link_errors_total" not in {name for name, _ in found}
    assert of(found, "gpu_nvlink_up")["9",] == 0.0  # by the call for each link
    assert sum(of(found, "gpu_nvlink_up").values()) == found["gpu_nvlinks_up", ()] == 11.0


def test_counters_of_nvlink_and_of_ecc_are_never_asked_for_together() -> None:
    """On a GB200 the ECC fields came back empty then (NVIDIA/DCGM#265)."""
    batches: list[set[int]] = []
    bench = Bench("b200", 1).open()
    bench.faults.fail("nvmlDeviceGetMemoryErrorCounter", 3)  # so that the ECC fields are asked for
    inner = getattr(bench.library, FIELDS)

    def fields(handle: object, count: Any, values: Any) -> Any:
        batches.append({entry.fieldId for entry in values._obj})
        return inner(handle, count, values)

    pynvml._nvmlGetFunctionPointer_cache[FIELDS] = fields
    watch = Watch(bench)
    watch.read()
    shown(watch)
    ecc, nvlink = set(range(1, 32)), set(range(201, 223))
    assert any(batch & ecc for batch in batches)
    assert any(batch & nvlink for batch in batches)
    assert not any(batch & ecc and batch & nvlink for batch in batches)


def test_a_superchip_counts_errors_of_its_link_to_the_cpu() -> None:
    bench = Bench("gb200", 1).open()
    bench.library.gpu(0).health.c2c_errors = {
        ("interrupt", 0): 15,
        ("replay", 0): 60,
        ("replay", 9): 40,
        ("replay_back_to_back", 4): 5,
    }
    watch = Watch(bench)
    watch.read()
    assert of(shown(watch), "gpu_c2c_errors_total") == {
        ("interrupt",): 15.0,
        ("replay",): 100.0,
        ("replay_back_to_back",): 5.0,
    }


def _refuse_link(link: int) -> None:
    inner = pynvml._nvmlGetFunctionPointer(FIELDS)

    def fields(handle: object, count: Any, values: Any) -> Any:
        code = inner(handle, count, values)
        for entry in values._obj:
            if entry.scopeId == link and 161 <= entry.fieldId <= 163:
                entry.nvmlReturn = 3
        return code

    pynvml._nvmlGetFunctionPointer_cache[FIELDS] = fields


# --- fabric ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("number", "state"), [(0, "not_supported"), (1, "not_started"), (2, "in_progress"), (3, "completed")]
)
@pytest.mark.parametrize("driver", ["535.54.03", "550.54.15", "590.48.01"])
def test_the_registration_with_the_fabric_is_one_of_four_states(number: int, state: str, driver: str) -> None:
    bench = Bench("h100", 1, driver_version=driver).open()
    bench.library.gpu(0).health.fabric_state = number
    found = shown(Watch(bench))
    states = of(found, "gpu_fabric_state")
    assert len(states) == 4
    assert [labels for labels, value in states.items() if value == 1.0] == [(state,)]
    assert (("gpu_fabric_info", ()) in found) == (state == "completed")


def _fabric_info(watch: Watch) -> Any:
    (found,) = [reading for reading in watch.tick(15) if type(reading).__name__ == "GpuFabricInfo"]
    return found


def test_on_one_node_there_is_a_clique_and_no_cluster() -> None:
    found = _fabric_info(Watch(Bench("h100", 1).open()))
    assert (found.cluster_uuid, found.clique) == ("", "0")
    assert (found.chassis, found.slot, found.tray) == ("", "", "")


def test_in_a_rack_cluster_clique_and_place_are_told() -> None:
    bench = Bench("b200", 1).open()
    fabric, platform = (
        getattr(bench.library, name) for name in ("nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetPlatformInfo")
    )

    def fabric_info(handle: object, info: Any) -> Any:
        code = fabric(handle, info)
        info._obj.clusterUuid[:] = bytes(range(16))
        info._obj.cliqueId = 32766
        return code

    def platform_info(handle: object, info: Any) -> Any:
        code = platform(handle, info)
        info._obj.chassisSerialNumber = b"1820325191999"
        info._obj.slotNumber, info._obj.trayIndex = b"\x88", b"\x0a"  # no text in any encoding
        return code

    pynvml._nvmlGetFunctionPointer_cache["nvmlDeviceGetGpuFabricInfoV"] = fabric_info
    pynvml._nvmlGetFunctionPointer_cache["nvmlDeviceGetPlatformInfo"] = platform_info
    watch = Watch(bench)
    watch.read()
    found = _fabric_info(watch)
    assert found.cluster_uuid == "00010203-0405-0607-0809-0a0b0c0d0e0f"
    assert found.clique == "32766"
    assert (found.chassis, found.slot, found.tray) == ("1820325191999", "136", "10")
