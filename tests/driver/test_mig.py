"""MIG from the driver to the page: instances as devices of their own, boards cut anew, lost, and hanging.

What an instance has is what
`nvidia-smi -q` shows of one (H100 and H200 with driver 590.48.01, A100): memory, BAR1, errors of SRAM.
"""

from __future__ import annotations

import ctypes
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from clusterwatt.readings.agent import CollectorErrors
from clusterwatt.readings.gpu import GpuInfo, GpuMemory, GpuMode, GpuPower, GpuUse
from clusterwatt.readings.gpu_health import GpuEccErrors
from clusterwatt.readings.gpu_measured import (
    DriverUp,
    GpuActive,
    GpuActivity,
    GpuBusy,
    GpuDown,
    GpuEnergy,
    GpuUp,
)
from clusterwatt.readings.host import NodePower
from clusterwatt.simulate.gpu import MigDevice, simulated_uuid
from clusterwatt.simulate.work import FREE
from tests.driver.node import PATIENT_S, Node
from tests.makers import maker
from tests.nodes import page_of

LAYOUT = ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")
LAYOUTS = {
    "h100": LAYOUT,
    "h200": ("3g.71gb", "2g.35gb", "1g.18gb"),
    "b200": ("1g.23gb",) * 7,
    "a100": ("3g.20gb", "2g.10gb", "1g.5gb"),
}
IMPATIENT_S = 0.3  # real seconds
LOST, NOT_FOUND, UNKNOWN = 15, 6, 999
LOOK_S = 10


class CutNode(Node):
    """Board 0 is cut, the others are whole."""

    def __init__(
        self, card: str = "h100", gpus: int = 3, deadline_s: float = PATIENT_S, *, cut: bool = True
    ) -> None:
        instances = {0: LAYOUTS[card]} if cut else None
        super().__init__(card, gpus, deadline_s=deadline_s, gpus_expected=gpus, cut=instances)

    @property
    def made(self) -> list[MigDevice]:
        """The instances that the driver has on the cut board."""
        return self.library.gpu(0).mig_devices

    def up(self) -> dict[str, float]:
        """`gpu_up` by the label gpu."""
        return {reading.gpu: reading.up for reading in self.snapshot.of(GpuUp)}

    def families(self, uuid: str) -> set[str]:
        """Families in which a device has a series."""
        lines = [line for line in page_of(self.snapshot).body.decode().splitlines() if uuid in line]
        own = [line for line in lines if f'parent_uuid="{uuid}"' not in line]
        return {line.partition("{")[0].removeprefix("clusterwatt_") for line in own}

    def graphics_s(self, uuid: str) -> float:
        return float(self.of(GpuBusy, uuid).busy_seconds)


NodeOf = Callable[..., CutNode]
BOARD = simulated_uuid(1, 0)


@pytest.fixture
def node_of() -> Iterator[NodeOf]:
    yield from maker(CutNode)


# --- what an instance is ---------------------------------------------------------------------------------


@pytest.mark.parametrize("card", LAYOUTS)
def test_instances_are_devices_of_their_own(node_of: NodeOf, card: str) -> None:
    node = node_of(card).tick(2)
    for slot, (device, profile) in enumerate(zip(node.made, LAYOUTS[card], strict=True)):
        info, board = node.of(GpuInfo, device.uuid), node.of(GpuInfo, BOARD)
        assert device.uuid.startswith("MIG-")
        assert (info.gpu, info.mig_profile, info.parent_uuid) == (f"0:{slot}", profile, BOARD)
        assert info.gpu_instance == str(device.instance)
        assert (info.name, info.architecture, info.pci_bus_id) == (
            board.name,
            board.architecture,
            board.pci_bus_id,
        )
        assert (info.minor, info.serial, info.vbios) == ("", "", "")  # the driver states them of boards only
        memory = node.of(GpuMemory, device.uuid)
        assert memory.total_bytes == device.total_bytes
        assert memory.used_bytes == device.used_bytes(node.clock.wall_s())
        assert memory.reserved_bytes == 0
    assert node.up() == dict.fromkeys(["0", "1", "2", *(f"0:{n}" for n in range(len(node.made)))], 1.0)
    (state,) = node.snapshot.of(DriverUp)
    assert (state.gpus_visible, state.gpus_expected) == (3, 3)


ON_EVERY_CARD = {
    "gpu_info",
    "gpu_up",
    "gpu_memory_used_bytes",
    "gpu_memory_total_bytes",
    "gpu_memory_free_bytes",
    "gpu_memory_reserved_bytes",
    "gpu_bar1_used_bytes",
    "gpu_bar1_total_bytes",
    "gpu_ecc_errors_total",
    "gpu_processes",
}
WITH_GPM = {
    "gpu_activity_seconds_total",
    "gpu_activity_signal",
    "gpu_busy_seconds_total",
    "gpu_sm_active_seconds_total",
    "gpu_sm_occupancy_seconds_total",
    "gpu_tensor_active_seconds_total",
    "gpu_dram_active_seconds_total",
    "gpu_graphics_active_seconds_total",
    "gpu_pipe_active_seconds_total",
}


@pytest.mark.parametrize("card", LAYOUTS)
def test_an_instance_has_what_the_driver_tells_of_it_and_nothing_of_the_board(
    node_of: NodeOf, card: str
) -> None:
    node = node_of(card).tick(65)  # everything slow has had its turn
    offered = ON_EVERY_CARD | (set() if card == "a100" else WITH_GPM)
    assert {device.uuid: node.families(device.uuid) for device in node.made} == {
        device.uuid: offered for device in node.made
    }


def test_the_errors_of_an_instance_are_its_own(node_of: NodeOf) -> None:
    node = node_of()
    node.made[1].sram_errors = 2
    node.tick(2)
    assert [node.of(GpuEccErrors, device.uuid).errors for device in node.made] == [0, 2, 0, 0]


def test_activity_of_an_instance_is_that_of_its_tenant(node_of: NodeOf) -> None:
    node = node_of().tick(3)
    works, holds = node.made[0], node.made[1]
    before, began_s = node.of(GpuActivity, works.uuid).activity_seconds, node.clock.wall_s()
    busy_s = node.graphics_s(works.uuid)
    node.tick(120)
    signals, ended_s = works.tenant.signals, node.clock.wall_s()
    sm_s = signals.sm.integral(ended_s) - signals.sm.integral(began_s)
    ran_s = signals.busy.integral(ended_s) - signals.busy.integral(began_s)
    assert sm_s > 10
    assert node.of(GpuActivity, works.uuid).activity_seconds - before == pytest.approx(sm_s, rel=0.01)
    assert node.graphics_s(works.uuid) - busy_s == pytest.approx(ran_s, rel=0.01)
    assert node.of(GpuActivity, holds.uuid).activity_seconds == 0


# --- what the board keeps --------------------------------------------------------------------------------


def test_a_board_in_mig_mode_keeps_what_is_of_the_board(node_of: NodeOf) -> None:
    node = node_of().tick(65)
    cut, whole = node.families(BOARD), node.families(simulated_uuid(1, 1))
    assert {
        "gpu_power_watts",
        "gpu_energy_joules_total",
        "gpu_temperature_celsius",
        "gpu_clock_hertz",
        "gpu_throttle_seconds_total",
        "gpu_memory_used_bytes",
        "gpu_pcie_receive_bytes_total",
        "gpu_ecc_errors_total",
        "gpu_xid_events_total",
    } <= cut
    assert {
        "gpu_utilization_ratio",
        "gpu_busy_seconds_total",
        "gpu_memory_utilization_ratio",
        "gpu_memory_busy_seconds_total",
        "gpu_activity_seconds_total",
        "gpu_activity_signal",
        "gpu_remapped_rows_total",
        "gpu_nvlink_up",
    } <= whole - cut
    assert cut <= whole


@pytest.mark.parametrize("card", LAYOUTS)
def test_g15_the_watts_of_a_board_are_measured_once(node_of: NodeOf, card: str) -> None:
    node = node_of(card).tick(65)
    instances = {device.uuid for device in node.made}
    for kind in (GpuPower, GpuEnergy):
        assert not {reading.uuid for reading in node.snapshot.of(kind)} & instances  # type: ignore[attr-defined]  # of GPUs
    now_s = node.clock.wall_s()
    boards_w = sum(node.library.gpu(board).power_w(now_s) for board in range(3))
    instant = [p for p in node.snapshot.of(GpuPower) if (p.scope, p.kind) == ("gpu", "instant")]
    assert sum(reading.power_watts for reading in instant) == pytest.approx(boards_w, abs=0.01)
    (gpus,) = [power for power in node.snapshot.of(NodePower) if power.component == "gpu"]
    stated = [p for p in node.snapshot.of(GpuPower) if p.scope == "gpu"]
    by_kind = {kind: sum(p.power_watts for p in stated if p.kind == kind) for kind in ("average", "instant")}
    assert any(gpus.power_watts == pytest.approx(watts, abs=0.01) for watts in by_kind.values())


# --- cut anew while it runs ------------------------------------------------------------------------------


def test_instances_of_a_new_cut_are_there_at_once_and_the_old_ones_are_gone(node_of: NodeOf) -> None:
    node = node_of().tick(25)
    old = [device.uuid for device in node.made]
    node.library.configure_mig(0, ["1g.10gb"] * 7)
    node.tick()
    assert node.up() == dict.fromkeys(["0", "1", "2", *(f"0:{n}" for n in range(7))], 1.0)
    assert all(node.of(GpuInfo, device.uuid).mig_profile == "1g.10gb" for device in node.made)
    page = page_of(node.snapshot).body.decode()
    assert not [uuid for uuid in old if uuid in page]


def test_an_instance_that_takes_over_a_number_takes_over_no_activity(node_of: NodeOf) -> None:
    """The number of a GPU instance is given to another one at once; samples of the two never meet."""
    node = node_of().tick(60)
    old = node.made[0]
    assert node.of(GpuActive, old.uuid).sm_active_seconds > 10
    node.library.configure_mig(0, LAYOUT, [FREE] * 4)
    new = node.made[0]
    assert new.instance == old.instance
    node.tick(10)
    assert node.of(GpuActive, old.uuid) is None
    assert node.of(GpuActive, new.uuid).sm_active_seconds == 0
    assert not [errors for errors in node.snapshot.of(CollectorErrors) if errors.collector == "gpm"]


def test_an_instance_made_anew_under_the_same_uuid_goes_on(node_of: NodeOf) -> None:
    """Real drivers derive the UUID from the place on the board."""
    node = node_of().tick(30)
    uuids = [device.uuid for device in node.made]
    before = node.of(GpuActivity, uuids[0]).activity_seconds
    freed = node.library.calls["nvmlGpmSampleFree"]
    for _ in range(20):
        node.library._cuts[0] = 0  # the next cut has the UUIDs of the first
        node.library.configure_mig(0, LAYOUT)
        node.tick(3)
        assert [device.uuid for device in node.made] == uuids
        now = node.of(GpuActivity, uuids[0]).activity_seconds
        assert before <= now <= before + 3
        before = now
    assert before > 5
    assert node.snapshot.of(CollectorErrors) == ()
    assert node.library.calls["nvmlGpmSampleFree"] >= freed


def test_a_handle_that_was_given_to_another_instance_is_noticed(node_of: NodeOf) -> None:
    """nvml.h: a handle may be reused once its instance is gone."""
    node = node_of().tick(12)  # the next look is not due for some seconds
    library, old = node.library, node.made[0]
    token = library._tokens[id(old)]
    library.configure_mig(0, ["7g.80gb"], [FREE])
    new = node.made[0]
    library._tokens[id(new)], library._objects[ctypes.addressof(token)] = token, new
    node.tick()
    assert node.of(GpuMemory, old.uuid) is None
    assert node.of(GpuMemory, new.uuid).total_bytes == new.total_bytes
    assert node.of(GpuInfo, new.uuid).mig_profile == "7g.80gb"


def test_an_instance_that_is_added_is_seen_at_the_next_look(node_of: NodeOf) -> None:
    node = node_of(cut=False)
    node.library.configure_mig(0, LAYOUT)
    added = node.made.pop()
    node.tick(3)
    assert "0:3" not in node.up()
    node.made.append(added)
    node.tick(LOOK_S)
    assert node.up()["0:3"] == 1.0
    node.made.remove(added)  # destroyed alone; the others go on
    node.library.drop(added)
    node.tick()
    assert "0:3" not in node.up()
    assert node.up()["0:2"] == 1.0


def test_slots_are_sparse(node_of: NodeOf) -> None:
    node = node_of()
    gone = node.made.pop(1)
    node.library.drop(gone)
    node.tick()
    assert set(node.up()) == {"0", "0:0", "0:2", "0:3", "1", "2"}


def test_mig_mode_without_instances(node_of: NodeOf) -> None:
    node = node_of(cut=False)
    node.library.configure_mig(0, [])
    node.tick(3)
    assert set(node.up()) == {"0", "1", "2"}
    assert node.of(GpuUse, BOARD) is None


# --- into and out of MIG mode ----------------------------------------------------------------------------


def mig_mode(node: Node) -> float:
    (state,) = [mode.enabled for mode in node.every(GpuMode, BOARD) if mode.mode == "mig"]
    return float(state)


def test_a_board_that_enters_mig_mode(node_of: NodeOf) -> None:
    node = node_of(cut=False).tick(25)
    energy = node.of(GpuEnergy, BOARD).energy_joules
    node.library.configure_mig(0, LAYOUT)
    node.tick(LOOK_S)
    assert mig_mode(node) == 1.0
    assert set(node.up()) == {"0", "0:0", "0:1", "0:2", "0:3", "1", "2"}
    assert (node.of(GpuUse, BOARD), node.of(GpuActivity, BOARD)) == (None, None)
    assert node.of(GpuBusy, BOARD).busy_seconds is None  # that of memory has intervals of 5 s
    node.tick(LOOK_S)
    assert node.of(GpuBusy, BOARD) is None
    assert node.of(GpuEnergy, BOARD).energy_joules > energy
    errors = {(each.collector, each.reason): each.errors for each in node.snapshot.of(CollectorErrors)}
    assert errors == {("gpm", "signal_lost"): 1.0}


def test_a_board_that_leaves_mig_mode_has_its_activity_where_it_was(node_of: NodeOf) -> None:
    node = node_of(cut=False).tick(63)
    node.library.configure_mig(0, LAYOUT)
    active_s = busy_s = 0.0
    for _ in range(120):
        node.tick()
        active, busy = node.of(GpuActivity, BOARD), node.of(GpuBusy, BOARD)
        active_s = active.activity_seconds if active else active_s
        busy_s = busy.busy_seconds if busy and busy.busy_seconds is not None else busy_s
    assert min(active_s, busy_s) > 10
    assert node.of(GpuActive, BOARD) is not None  # GPM goes on to measure the board as a whole
    node.library.configure_mig(0, None)
    node.tick(2)
    assert mig_mode(node) == 0.0
    assert set(node.up()) == {"0", "1", "2"}
    assert active_s <= node.of(GpuActivity, BOARD).activity_seconds <= active_s + 2
    assert busy_s <= node.of(GpuBusy, BOARD).busy_seconds <= busy_s + 2


def test_an_agent_that_started_in_mig_mode_sees_what_the_whole_board_offers(node_of: NodeOf) -> None:
    node = node_of().tick(60)
    node.library.configure_mig(0, None)
    node.tick(2)
    assert node.of(GpuUse, BOARD).utilization_ratio is not None
    node.tick(60)
    assert node.families(BOARD) == node.families(simulated_uuid(1, 1))
    assert node.of(GpuActivity, BOARD).activity_seconds <= 62


# --- loss, hangs, errors ---------------------------------------------------------------------------------


def reasons(node: Node) -> dict[str, str]:
    return {down.gpu: down.reason for down in node.snapshot.of(GpuDown)}


def test_instances_are_lost_with_their_board_and_come_back_with_it(node_of: NodeOf) -> None:
    node = node_of().tick(15)
    rule = node.faults.lose(0)
    for _ in range(30):
        node.tick()
        assert reasons(node) == dict.fromkeys(["0", "0:0", "0:1", "0:2", "0:3"], "lost")
        assert node.snapshot.of(DriverUp)[0].gpus_visible == 2
        assert node.families(node.made[0].uuid) == {"gpu_up", "gpu_down_info"}
    node.faults.clear(rule)
    node.tick(LOOK_S + 2)
    assert node.up() == dict.fromkeys(["0", "0:0", "0:1", "0:2", "0:3", "1", "2"], 1.0)


def test_instances_of_a_board_that_vanishes_are_lost_with_it(node_of: NodeOf) -> None:
    node = node_of().tick(15)
    node.faults.vanished = {0}
    node.tick(3)
    lost = {down.uuid for down in node.snapshot.of(GpuDown)}
    assert lost == {BOARD, *(device.uuid for device in node.made)}
    node.faults.vanished = set()
    node.tick(LOOK_S + 2)
    assert node.snapshot.of(GpuDown) == ()


def test_an_instance_destroyed_while_its_board_was_lost_is_gone_when_it_is_back(node_of: NodeOf) -> None:
    node = node_of().tick(15)
    rule = node.faults.lose(0)
    node.tick(3)
    node.library.configure_mig(0, ["7g.80gb"])
    node.tick(2)
    assert "0:3" in reasons(node)
    node.faults.clear(rule)
    node.tick(LOOK_S + 2)
    assert set(node.up()) == {"0", "0:0", "1", "2"}


def test_trouble_of_one_instance_is_its_own(node_of: NodeOf) -> None:
    """What a driver says of a handle that dies is not written down; it must not cost the board."""
    node = node_of().tick(3)
    original = node.library.target

    def target(handle: Any) -> object:
        found = original(handle)
        if found is node.made[1]:
            from clusterwatt.simulate.library.calls import Refused

            raise Refused(LOST)
        return found

    node.library.target = target  # type: ignore[method-assign]
    node.tick(12)
    assert node.up() == dict.fromkeys(["0", "0:0", "0:2", "0:3", "1", "2"], 1.0)
    assert {(each.collector, each.reason) for each in node.snapshot.of(CollectorErrors)} == {("gpu", "lost")}
    node.library.target = original  # type: ignore[method-assign]
    node.tick(LOOK_S)
    assert node.up()["0:1"] == 1.0


def test_while_the_mode_is_not_known_nothing_is_said_of_instances_that_are_gone(node_of: NodeOf) -> None:
    node = node_of().tick(3)
    rule = node.faults.fail("nvmlDeviceGetMigMode", UNKNOWN)
    node.library.configure_mig(0, ["7g.80gb"])
    node.tick()
    assert set(node.up()) == {"0", "1", "2"}
    node.faults.clear(rule)
    node.tick(2 * LOOK_S)
    assert set(node.up()) == {"0", "0:0", "1", "2"}


def test_g06_a_board_that_hangs_costs_itself_and_its_instances(node_of: NodeOf) -> None:
    node = node_of(deadline_s=IMPATIENT_S).tick(3)
    threads = threading.active_count()
    rule = node.faults.hang("nvmlDeviceGetMemoryInfo*", gpu=0)
    node.tick(10)
    assert reasons(node) == dict.fromkeys(["0", "0:0", "0:1", "0:2", "0:3"], "timeout")
    assert {gpu for gpu, up in node.up().items() if up} == {"1", "2"}
    assert threading.active_count() <= threads
    node.faults.clear(rule)


def test_a_fresh_host_finds_the_same_instances_and_forgets_those_that_are_gone(node_of: NodeOf) -> None:
    node = node_of().tick(3)
    activity = node.of(GpuActivity, node.made[0].uuid).activity_seconds
    node.host.close()
    node.host = node.new_host()
    node.tick(3)
    assert set(node.up()) == {"0", "0:0", "0:1", "0:2", "0:3", "1", "2"}
    assert node.of(GpuActivity, node.made[0].uuid).activity_seconds >= activity
    node.host.close()
    node.library.configure_mig(0, ["7g.80gb"])
    node.host = node.new_host()
    node.tick(2)
    assert set(node.up()) == {"0", "0:0", "1", "2"}


def test_a_board_that_moves_takes_its_instances_along(node_of: NodeOf) -> None:
    node = node_of(cut=False)
    node.library.configure_mig(2, LAYOUT)
    node.tick(15)
    assert "2:3" in node.up()
    node.faults.vanished = {0}
    node.tick(LOOK_S + 2)
    uuids = {info.gpu: info.uuid for info in node.snapshot.of(GpuInfo)}
    moved = node.library.gpu(2).mig_devices
    assert {f"1:{device.slot}": device.uuid for device in moved}.items() <= uuids.items()


# --- GPM of compute instances ----------------------------------------------------------------------------


def test_activity_of_a_gpu_instance_is_given_to_no_part_of_it(node_of: NodeOf) -> None:
    """An H200 with 1c.3g and 2c.3g on one GPU instance, as in the field: GPM tells of the two together."""
    node = node_of(cut=False)
    node.library.configure_mig(0, LAYOUT)
    whole = node.made[0]
    part = MigDevice(
        whole.gpu,
        whole.profile,
        slot=4,
        start=whole.start,
        instance=whole.instance,
        uuid="MIG-00000000-0000-5000-8000-000000000001",
        tenant=FREE,
    )
    part.compute_instance = 1
    node.made.append(part)
    node.tick(3)
    for device in (whole, part):
        assert node.of(GpuMemory, device.uuid) is not None
        assert (node.of(GpuActivity, device.uuid), node.of(GpuBusy, device.uuid)) == (None, None)
    assert node.of(GpuActivity, node.made[1].uuid) is not None


# --- cost ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("card", LAYOUTS)
def test_an_instance_costs_twelve_driver_calls_a_second_at_most(node_of: NodeOf, card: str) -> None:
    whole = node_of(card, gpus=1, cut=False).tick(5)
    whole_calls = calls_per_s(whole)
    cut = node_of(card, gpus=1).tick(5)
    assert (calls_per_s(cut) - whole_calls) / len(cut.made) <= 12.0
    assert calls_per_s(cut) / (1 + len(cut.made)) <= 12.0


def calls_per_s(node: Node) -> float:
    """The highest mean over ten seconds in two minutes."""
    most = 0.0
    for _ in range(12):
        before = sum(node.library.calls.values()) - node.library.calls["nvmlEventSetWait_v2"]
        node.tick(10)
        after = sum(node.library.calls.values()) - node.library.calls["nvmlEventSetWait_v2"]
        most = max(most, (after - before) / 10)
    return most


def test_instances_have_no_threads_and_gpm_has_one(node_of: NodeOf) -> None:
    threads = {thread.name for thread in threading.enumerate()}
    node = node_of().tick(5)
    new = {thread.name for thread in threading.enumerate()} - threads
    assert not [name for name in new if ":" in name or "MIG" in name]
    assert len(node.library.gpm_threads) == 1


@pytest.mark.parametrize(("profile", "most"), [("minimal", 11), ("standard", 24), ("full", 35)])
def test_an_instance_has_no_more_series_than_the_contract_counts(
    node_of: NodeOf, profile: str, most: int
) -> None:
    node = node_of(gpus=1).tick(65)
    lines = page_of(node.snapshot, profile).body.decode().splitlines()
    for device in node.made:
        series = [line for line in lines if re.search(f'uuid="{device.uuid}"', line)]
        assert len(series) <= most
