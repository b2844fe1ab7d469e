"""What one GPU's readings put into the books: whose it is, what state it was in, what is known of it."""

from __future__ import annotations

import msgspec
import pytest

from clusterwatt.attribution.entries import Baseline, Entry
from clusterwatt.config.model import Config
from clusterwatt.readings.gpu import GpuIntegrals, GpuProcess
from clusterwatt.readings.gpu_measured import GpuActivitySignal, GpuEnergy
from clusterwatt.readings.work import (
    CarbonIntensity,
    ElectricityPrice,
    GpuPrice,
    GpuState,
    GpuStateCost,
    NodeGpuState,
    NodeGpuStateCost,
    ProcessOwner,
)
from tests.attribution.node import NAME, A, B, Node, gpu, held_by, mig

JOB, OTHER = "slurm/1", "slurm/2"


def states(node: Node, field: str = "state_seconds", uuid: str = A) -> dict[str, float]:
    return {each.state: getattr(each, field) for each in node.readings.get(GpuState, ()) if each.uuid == uuid}


def shared(node: Node, *ratios: float | None) -> Node:
    """Two pods on one GPU, each with a process."""
    node.jobs(held_by(JOB, f"{A}::0", member="p1"), held_by(OTHER, f"{A}::2", member="p2"))
    for pid, (job_id, ratio) in enumerate(zip((JOB, OTHER), ratios, strict=True), 501):
        node.more += [GpuProcess("0", A, pid, "compute", sm_ratio=ratio), ProcessOwner(pid, job_id)]
    return node


def test_g03_the_power_of_a_shared_gpu_goes_by_time_on_the_sms() -> None:
    node = Node()
    node.watts[A] = 200.0
    shared(node, 0.6, 0.2).ticks(11)
    assert node.joules() == pytest.approx({JOB: 1_500.0, OTHER: 500.0})
    assert node.sums("gpu_seconds") == {JOB: 5.0, OTHER: 5.0}
    assert sum(states(node, "energy_joules").values()) == pytest.approx(2_000.0)


@pytest.mark.parametrize("ratios", [(None, None), (0.0, 0.0)])
def test_g03_without_a_measure_of_each_it_goes_evenly(ratios: tuple[float | None, float | None]) -> None:
    node = Node()
    node.watts[A] = 200.0
    shared(node, *ratios).ticks(11)
    assert node.joules() == pytest.approx({JOB: 1_000.0, OTHER: 1_000.0})
    assert {entry.method for entry in node.take()} == {"estimated"}


def test_g15_instances_have_their_slices_of_the_boards_joules_and_free_slices_are_nobodys() -> None:
    node = Node(gpu(A), *(mig(A, number, profile) for number, profile in enumerate(("3g", "2g", "1g.10gb"))))
    node.infos = [gpu(A), mig(A, 0, "3g.40gb"), mig(A, 1, "2g.20gb"), mig(A, 2, "1g.10gb")]
    node.watts[A] = 420.0
    names = [info.uuid for info in node.infos[1:]]
    node.jobs(*(held_by(f"slurm/{number}", uuid) for number, uuid in enumerate(names)))
    node.ticks(2)
    booked = node.joules()
    assert booked == pytest.approx({"slurm/0": 180.0, "slurm/1": 120.0, "slurm/2": 60.0, "": 60.0})
    assert sum(booked.values()) == pytest.approx(420.0, abs=0.01)
    assert {entry.method for entry in node.take()} == {"estimated"}
    assert states(node, "state_seconds", A) == pytest.approx({"active": 0.0, "idle": 0.0, "free": 1 / 7})
    assert states(node, "state_seconds", names[0])["active"] == pytest.approx(3 / 7)


def test_g04_without_a_counter_power_over_time_is_booked_and_says_so() -> None:
    node = Node(every_s=10.0)
    node.offers_counter, node.watts[A] = False, 45.0
    node.jobs(held_by(JOB, A))
    node.tick(0.0)
    node.ticks(360)
    assert node.joules() == pytest.approx({JOB: 162_000.0}, rel=0.01)
    assert {entry.method for entry, amounts in node.take().items() if amounts.joules} == {"integrated"}


@pytest.mark.parametrize("wall", [3_610.0, -3_600.0])
def test_g34_a_step_of_the_clock_is_no_energy_and_no_time(wall: float) -> None:
    node = Node(every_s=10.0)
    node.watts[A] = 300.0
    node.jobs(held_by(JOB, A))
    node.tick()
    node.tick(10.0, wall=wall)
    assert node.joules() == {JOB: 3_000.0}
    assert node.sums("gpu_seconds") == {JOB: 10.0}
    assert all(batch.unobserved_seconds == 0.0 for batch in node.batches)


def test_g39_a_counter_that_steps_back_once_costs_nobody_anything() -> None:
    node = Node(every_s=10.0)
    node.jobs(held_by(JOB, A))
    node.watts[A] = 0.0
    booked = []
    for counter in (3_000_262.144, 3_000_000.0, 3_000_500.0):
        node.counter[A] = counter
        booked.append(node.tick().joules().get(JOB, 0.0))
    assert booked[:2] == [0.0, 0.0]
    assert 237.856 - 1e-6 <= booked[2] <= 500.0


def test_an_interval_goes_to_who_held_the_gpu_when_it_began() -> None:
    node = Node()
    node.tick()
    node.jobs(held_by(JOB, A))
    node.tick()
    assert node.joules() == {"": 400.0}
    node.tick()
    node.jobs(held_by(OTHER, A))
    node.tick()
    assert node.joules() == {"": 400.0, JOB: 800.0}
    node.tick()
    assert node.joules() == {"": 400.0, JOB: 800.0, OTHER: 400.0}
    assert states(node) == {"active": 3.0, "idle": 0.0, "free": 1.0}


def test_the_account_is_the_jobs_when_it_was_booked() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(2)
    (entry,) = node.take()
    assert entry == Entry(JOB, f"acct-{JOB}", A, NAME, "gpu", "active", "counter", "")


def test_a_gpu_that_is_held_and_does_nothing_is_idle_after_a_minute() -> None:
    node = Node()
    node.activity[A] = 0.005
    node.jobs(held_by(JOB, A))
    node.ticks(61)
    assert states(node) == {"active": 60.0, "idle": 0.0, "free": 0.0}
    node.ticks(40)
    assert states(node) == {"active": 60.0, "idle": 40.0, "free": 0.0}
    assert states(node, "energy_joules") == {"active": 24_000.0, "idle": 16_000.0, "free": 0.0}
    node.activity[A] = 1.0
    node.ticks(10)
    assert states(node)["idle"] == 40.0
    idle = sum(a.gpu_seconds for entry, a in node.take().items() if entry.state == "idle")
    assert idle == 40.0


def test_the_next_holder_begins_with_a_minute_of_its_own() -> None:
    node = Node()
    node.activity[A] = 0.0
    node.jobs(held_by(JOB, A))
    node.ticks(81)
    assert states(node)["idle"] == 20.0
    node.jobs(held_by(OTHER, A))
    node.ticks(61)
    assert states(node)["idle"] == pytest.approx(21.0)  # the last second of the first
    node.tick()
    assert states(node)["idle"] == pytest.approx(22.0)


def test_a_sharer_that_comes_does_not_wake_a_gpu_that_the_other_keeps_idle() -> None:
    node = Node()
    node.activity[A] = 0.0
    node.jobs(held_by(JOB, A))
    node.ticks(81)
    node.jobs(held_by(JOB, A), held_by(OTHER, A))
    node.ticks(5)
    assert states(node)["active"] == 60.0


def test_without_the_signal_nothing_is_called_idle_and_no_activity_is_concluded() -> None:
    node = Node()
    node.activity[A] = None
    node.jobs(held_by(JOB, A))
    node.ticks(101)
    assert states(node) == {"active": 100.0, "idle": 0.0, "free": 0.0}
    assert node.sums("gpu_seconds") == {JOB: 100.0}
    assert node.sums("observed_seconds") == {}


def test_a_signal_that_was_away_does_not_put_its_past_into_one_second() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(3)
    node.activity[A] = None
    node.ticks(2)
    node.activity[A] = 1.0
    node.active[A] += 500.0
    node.ticks(3)
    assert node.sums("activity_seconds") == {JOB: 4.0}
    assert node.sums("observed_seconds") == {JOB: 4.0}


def test_an_activity_counter_that_begins_anew_makes_nobody_idle() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(100)
    node.active[A] = 0.0
    node.ticks(70)
    assert states(node)["idle"] == 0.0
    assert node.sums("activity_seconds") == {JOB: pytest.approx(99.0 + 69.0)}


def test_tensor_seconds_are_known_apart_from_activity() -> None:
    node = Node()
    node.tensor[A] = 0.25
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    assert node.sums("tensor_seconds") == {JOB: 1.0}
    assert node.sums("tensor_observed_seconds") == {JOB: 4.0}


def test_activity_of_a_shared_gpu_is_times_the_share_held() -> None:
    node = shared(Node(), 0.6, 0.2).ticks(5)
    assert node.sums("activity_seconds") == {JOB: 2.0, OTHER: 2.0}


def test_joules_across_a_gap_go_to_who_held_the_gpu_at_both_ends() -> None:
    node = Node(gpu(A), gpu(B, "1"))
    node.jobs(held_by(JOB, A), held_by(JOB, B))
    node.ticks(3)
    node.silent.add(A)
    node.ticks(20)
    node.silent.clear()
    node.tick()
    assert node.joules() == {JOB: 23 * 400.0 * 2}
    assert node.sums("gpu_seconds") == {JOB: 2.0 + 23.0}
    assert node.sums("unobserved_seconds") == {JOB: 21.0}
    assert all(batch.unobserved_seconds == 0.0 for batch in node.batches)  # B was measured all the time


def test_joules_across_a_gap_in_which_the_holder_changed_are_nobodys() -> None:
    node = Node(gpu(A), gpu(B, "1"))
    node.jobs(held_by(JOB, A))
    node.ticks(3)
    node.silent.add(A)
    node.ticks(10)
    node.jobs(held_by(OTHER, A))
    node.ticks(10)
    node.silent.clear()
    node.tick()
    on_a = {
        entry.job_id: amounts.joules
        for entry, amounts in node.take().items()
        if entry.device == A
        if amounts.joules
    }
    assert on_a == {JOB: 800.0, "": 21 * 400.0}
    assert node.sums("unobserved_seconds") == {JOB: pytest.approx(9.0, abs=1.01)}


def test_a_share_that_changed_in_the_gap_is_not_the_same_hold() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(2)
    node.jobs(held_by(JOB, A), held_by(OTHER, A))
    node.tick(100.0)
    assert node.joules() == {JOB: 400.0, "": 40_000.0}


def test_a_gpu_that_never_comes_back_is_unobserved_while_it_is_held() -> None:
    node = Node(gpu(A), gpu(B, "1"))
    node.jobs(held_by(JOB, A))
    node.ticks(3)
    node.silent.add(A)
    node.ticks(50)
    assert node.sums("unobserved_seconds") == {JOB: 50.0}
    assert states(node) == {}  # nobody measures it: there are no series


def test_seconds_in_which_all_gpus_are_silent_are_the_nodes() -> None:
    node = Node(gpu(A), gpu(B, "1"))
    node.ticks(3)
    node.silent |= {A, B}
    node.ticks(50)
    node.take()
    assert sum(batch.unobserved_seconds for batch in node.batches) == pytest.approx(50.0)
    node.silent.clear()
    node.ticks(5)
    node.take()
    assert sum(batch.unobserved_seconds for batch in node.batches) == pytest.approx(51.0)


def test_a_reading_that_is_taken_twice_is_booked_once() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(3)
    node.again().again()
    assert node.joules() == {JOB: 800.0}
    assert node.sums("gpu_seconds") == {JOB: 2.0}


def test_until_all_sources_were_heard_nothing_is_called_free() -> None:
    node = Node()
    node.sources = {"slurm": False}
    node.ticks(10)
    assert node.joules() == {}
    node.sources = {"slurm": True}
    node.jobs(held_by(JOB, A))
    node.tick()
    assert node.joules() == {JOB: 4_000.0}
    assert node.sums("gpu_seconds") == {JOB: 10.0}


def by_method(node: Node) -> dict[tuple[str, str], float]:
    """Joules by job and method; the two of a job add up."""
    sums: dict[tuple[str, str], float] = {}
    for entry, amounts in node.take().items():
        if amounts.joules:
            key = entry.job_id, entry.method
            sums[key] = sums.get(key, 0.0) + amounts.joules
    return sums


def closes(node: Node) -> bool:
    """Whether what was booked is what was measured."""
    return sum(node.joules().values()) == pytest.approx(sum(each.measured_joules for each in node.batches))


def test_while_the_counter_is_refused_its_job_has_joules_that_say_so() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    node.offers_counter = False
    node.ticks(13)
    assert states(node, "energy_joules")["active"] == pytest.approx(17 * 400.0)
    assert by_method(node) == pytest.approx({(JOB, "counter"): 4 * 400.0, (JOB, "integrated"): 13 * 400.0})
    node.offers_counter = True
    node.ticks(5)
    assert by_method(node) == pytest.approx({(JOB, "counter"): 9 * 400.0, (JOB, "integrated"): 13 * 400.0})
    assert states(node)["active"] == pytest.approx(22.0)
    assert closes(node)


def test_joules_that_stood_in_for_a_refused_counter_go_to_who_held_the_gpu() -> None:
    """What the counter has beyond them is of all that time: of nobody, since the holder has changed."""
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    node.offers_counter = False
    node.ticks(10)
    node.jobs(held_by(OTHER, A))
    node.ticks(10)
    node.offers_counter = True
    node.counter[A] += 100.0
    node.tick()
    assert by_method(node) == pytest.approx(
        {
            (JOB, "counter"): 4 * 400.0,
            (JOB, "integrated"): 11 * 400.0,
            (OTHER, "integrated"): 9 * 400.0,
            ("", "counter"): 400.0 + 100.0,
        }
    )
    node.ticks(4)
    assert by_method(node)[OTHER, "counter"] == pytest.approx(4 * 400.0)
    assert closes(node)


def test_without_counter_and_power_no_energy_is_shown_and_none_is_lost() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    node.offers_counter = node.offers_power = False
    node.ticks(10)
    assert set(states(node, "energy_joules").values()) == {None}
    assert states(node)["active"] == pytest.approx(14.0)
    node.offers_counter = node.offers_power = True
    node.ticks(5)
    assert node.joules() == pytest.approx({JOB: 19 * 400.0})
    assert states(node, "energy_joules")["active"] == pytest.approx(19 * 400.0)
    assert closes(node)


def test_joules_that_nobody_measured_are_nobodys_when_the_holder_changed_meanwhile() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    node.offers_counter = node.offers_power = False
    node.ticks(10)
    node.jobs(held_by(OTHER, A))
    node.ticks(10)
    node.offers_counter = node.offers_power = True
    node.ticks(5)
    joules = node.joules()
    assert joules[JOB] == pytest.approx(4 * 400.0)
    assert joules[OTHER] == pytest.approx(4 * 400.0)
    assert joules[""] == pytest.approx(21 * 400.0)


def test_an_agent_that_begins_while_power_stands_in_for_the_counter_books_nothing_twice() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(5)
    node.offers_counter = False
    node.ticks(11)
    node.restart(away_s=20.0)
    node.offers_counter = True
    node.ticks(5)
    assert node.joules() == pytest.approx({JOB: (4 + 11 + 20 + 5) * 400.0})
    assert closes(node)


def test_a_superchips_module_is_not_the_gpu() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    for second in (1.0, 2.0, 3.0):
        node.now_s += 1.0
        parts = {
            type(reading): (reading,)
            for reading in (
                gpu(A),
                GpuIntegrals(
                    "0", A, 0.0, node.now_s, energy_counter_joules=1.0, energy_counter_scope="module"
                ),
                *node.says,
            )
        }
        parts[GpuEnergy] = (  # type: ignore[assignment]  # two readings of one type
            GpuEnergy("0", A, "module", "counter", 1_000.0 * second),
            GpuEnergy("0", A, "gpu", "integrated", 600.0 * second),
        )
        list(node.accounting.take(parts, node.sources, wall_s=node.wall_s, now_s=node.now_s, every_s=1.0))
    assert node.joules() == {JOB: 1_800.0}
    assert {entry.method for entry in node.take()} == {"integrated"}
    assert node.batches[0].baselines[A].counter_joules is None


def test_a_gpu_without_power_has_seconds_and_no_energy() -> None:
    node = Node()
    node.offers_counter = False
    node.integral = {}
    node.watts = {}
    node.counter = {}
    node.jobs(held_by(JOB, A))
    node.more = []
    for _ in range(5):
        node.now_s += 1.0
        node.more = [GpuIntegrals("0", A, 0.0, node.now_s)]
        node.again()
    assert node.sums("gpu_seconds") == {JOB: 4.0}
    assert {(entry.method, amounts.joules) for entry, amounts in node.take().items()} == {("", None)}
    assert states(node, "energy_joules") == {"active": None, "idle": None, "free": None}


def test_sums_of_the_node_are_those_of_its_gpus_and_go_on_when_one_is_lost() -> None:
    node = Node(gpu(A), gpu(B))
    node.jobs(held_by(JOB, A))
    node.ticks(120)
    of_node = {each.state: each for each in node.readings[NodeGpuState]}
    for state, each in of_node.items():
        gpus = [gpu for gpu in node.readings[GpuState] if gpu.state == state]
        assert each.state_seconds == pytest.approx(sum(gpu.state_seconds for gpu in gpus))
        joules = [gpu.energy_joules for gpu in gpus if gpu.energy_joules is not None]
        assert each.energy_joules == pytest.approx(sum(joules))
    assert {state: each.state_seconds for state, each in of_node.items()} == pytest.approx(
        {"active": 119.0, "idle": 0.0, "free": 119.0}
    )
    node.silent.add(A)
    node.ticks(60)
    assert A not in {each.uuid for each in node.readings[GpuState]}
    for each in node.readings[NodeGpuState]:
        assert each.state_seconds >= of_node[each.state].state_seconds


# --- Money and carbon ----------------------------------------------------------------------------------


def with_pue(pue: float) -> Config:
    config = Config()
    return msgspec.structs.replace(config, meters=msgspec.structs.replace(config.meters, pue=pue))


def test_an_interval_is_priced_by_what_holds_in_it() -> None:
    node = Node(config=with_pue(1.5))
    node.watts[A] = 3_600.0  # a thousandth of a kWh each second
    node.jobs(held_by(JOB, A))
    node.tick()
    for price, grams in ((0.2, 400.0), (0.4, 100.0)):
        node.more = [
            ElectricityPrice("tariff", "", "EUR", price),
            CarbonIntensity("grid", "FR", "average", grams, None),
            GpuPrice(NAME, "book", "EUR", 3_600.0),
        ]
        node.tick()
    assert node.sums("energy_cost") == {JOB: pytest.approx(0.001 * 1.5 * (0.2 + 0.4))}
    assert node.sums("carbon_grams") == {JOB: pytest.approx(0.001 * 1.5 * (400.0 + 100.0))}
    assert node.sums("gpu_cost") == {JOB: pytest.approx(2.0)}
    costs = {each.state: each.cost for each in node.readings[GpuStateCost]}
    assert costs == {"active": pytest.approx(0.001 * 1.5 * 0.6 + 2.0), "idle": 0.0, "free": 0.0}
    assert {each.state: each.cost for each in node.readings[NodeGpuStateCost]} == costs


def test_without_a_feed_nothing_is_known_of_money_or_carbon() -> None:
    node = Node()
    node.ticks(3)
    (amounts,) = node.take().values()
    assert (amounts.carbon_grams, amounts.energy_cost, amounts.gpu_cost) == (None, None, None)
    assert GpuStateCost not in node.readings


def test_where_the_price_of_the_gpu_includes_power_energy_is_not_paid_twice() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.more = [
        ElectricityPrice("tariff", "", "EUR", 0.2),
        GpuPrice(NAME, "book", "EUR", 3.6, includes_power=True),
    ]
    node.ticks(3)
    (amounts,) = node.take().values()
    assert amounts.energy_cost is None
    assert amounts.gpu_cost == pytest.approx(0.002)


def test_two_currencies_stay_apart() -> None:
    node = Node()
    node.more = [ElectricityPrice("tariff", "", "EUR", 0.2), GpuPrice(NAME, "book", "USD", 3.6)]
    node.ticks(3)
    by_currency = {entry.currency: amounts for entry, amounts in node.take().items()}
    assert by_currency["EUR"].energy_cost == pytest.approx(800 / 3.6e6 * 0.2)
    assert by_currency["EUR"].gpu_seconds == 0.0
    assert by_currency["EUR"].joules is None
    assert by_currency["USD"].gpu_cost == pytest.approx(0.002)
    assert by_currency["USD"].joules == 800.0


# --- Hours, restarts -----------------------------------------------------------------------------------


def test_a_batch_never_spans_two_hours() -> None:
    node = Node()
    node.wall_s = 1_699_999_200.0 + 3_595.0
    node.jobs(held_by(JOB, A))
    node.ticks(10)
    node.take()
    assert [batch.hour_s for batch in node.batches] == [1_699_999_200, 1_700_002_800]
    assert [batch.measured_joules for batch in node.batches] == [1_200.0, 2_400.0]
    assert [len(batch.jobs) for batch in node.batches] == [0, 1]
    assert node.batches[0].baselines == {}


def test_a_restart_books_what_the_counter_saw_to_who_held_the_gpu_all_the_time() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(11)
    node.restart(away_s=60.0)
    node.tick(0.0)
    node.ticks(10)
    assert node.joules() == {JOB: pytest.approx((10 + 60 + 10) * 400.0)}
    assert node.sums("gpu_seconds") == {JOB: 20.0}
    assert node.sums("unobserved_seconds") == {JOB: pytest.approx(60.0)}
    assert sum(batch.unobserved_seconds for batch in node.batches) == pytest.approx(60.0)
    assert sum(states(node, "energy_joules").values()) == pytest.approx(10 * 400.0)  # begins with the agent


@pytest.mark.parametrize("offers_counter", [True, False])
def test_what_the_meters_count_before_a_late_ledger_opens_is_booked_once(offers_counter: bool) -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(11)
    node.restart(away_s=60.0)
    node.offers_counter = offers_counter
    node.ledger_told = False
    node.tick(0.0).ticks(8)
    node.offers_counter = node.ledger_told = True
    node.ticks(10)
    assert node.joules() == {JOB: pytest.approx((10 + 60 + 8 + 10) * 400.0)}
    assert sum(batch.measured_joules for batch in node.batches) == pytest.approx(sum(node.joules().values()))
    assert sum(states(node, "energy_joules").values()) == pytest.approx(node.energies[0].energy_joules)


def test_a_restart_in_which_the_job_changed_books_the_gap_to_nobody() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(11)
    node.restart(away_s=60.0)
    node.jobs(held_by(OTHER, A))
    node.tick(0.0)
    assert node.joules() == {JOB: 4_000.0, "": pytest.approx(24_000.0)}
    assert node.sums("unobserved_seconds") == {}


def test_after_a_reboot_the_counter_means_nothing() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(11)
    node.restart(away_s=600.0, boot_id="boot-2")
    node.ticks(2)
    assert node.joules() == {JOB: pytest.approx(4_400.0)}
    assert sum(batch.unobserved_seconds for batch in node.batches) == pytest.approx(601.0, abs=1.01)


def test_a_driver_that_was_loaded_anew_meanwhile_adds_nothing_of_before() -> None:
    node = Node()
    node.ticks(11)
    node.restart(away_s=60.0)
    node.counter[A] = 10.0
    node.ticks(2)
    assert node.joules() == {"": pytest.approx(4_400.0)}


def test_what_the_gpu_cannot_have_used_is_not_booked() -> None:
    node = Node()
    node.ticks(11)
    node.restart(away_s=60.0)
    node.counter[A] += 1e9
    node.ticks(2)
    assert node.joules() == {"": pytest.approx(4_400.0)}


def test_the_gap_of_a_restart_waits_for_the_sources() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(11)
    node.restart(away_s=60.0)
    node.sources = {"slurm": False}
    said, node.says = node.says, []
    node.tick(0.0).ticks(5)
    assert node.joules() == {JOB: 4_000.0}
    assert node.batches[-1].baselines == {}, "what is not booked yet must not look as if it were"
    node.sources, node.says = {"slurm": True}, said
    node.tick()
    assert node.joules() == {JOB: pytest.approx((10 + 60 + 6) * 400.0)}


def test_instances_come_back_to_their_jobs_after_a_restart() -> None:
    instance = mig(A, 1, "3g.40gb")
    node = Node(gpu(A), instance)
    node.jobs(held_by(JOB, instance.uuid))
    node.ticks(11)
    node.restart(away_s=70.0)
    node.tick(0.0)
    assert node.joules() == {
        JOB: pytest.approx(80 * 400.0 * 3 / 7),
        "": pytest.approx(80 * 400.0 * 4 / 7),
    }
    assert node.batches[0].baselines[instance.uuid] == Baseline(
        None, node.batches[0].wall_s, "", node.batches[0].baselines[instance.uuid].held
    )


def test_a_board_that_is_parted_anew_charges_the_old_parts_to_the_end_of_their_interval() -> None:
    node = Node(gpu(A), mig(A, 1, "3g.40gb"))
    node.jobs(held_by(JOB, f"MIG-00000001-{A[4:]}"))
    node.ticks(3)
    node.infos = [gpu(A)]
    node.ticks(2)
    assert node.joules() == {
        JOB: pytest.approx(3 * 400.0 * 3 / 7),
        "": pytest.approx(3 * 400.0 * 4 / 7 + 400.0),
    }
    assert set(states(node)) == {"active", "idle", "free"}


def test_what_is_no_more_is_not_kept() -> None:
    node = Node(gpu(A), mig(A, 1, "3g.40gb"))
    node.jobs(held_by(JOB, f"MIG-00000001-{A[4:]}"))
    node.ticks(5)
    before = states(node, uuid=f"MIG-00000001-{A[4:]}")
    node.infos = [gpu(A)]
    node.tick()
    node.infos = [gpu(A), mig(A, 1, "3g.40gb")]
    node.ticks(2)
    assert before["active"] == pytest.approx(4 * 3 / 7)
    assert states(node, uuid=f"MIG-00000001-{A[4:]}")["active"] == pytest.approx(3 / 7)


def test_a_gpu_that_is_counted_in_another_order_after_a_gap_is_the_same_gpu() -> None:
    node = Node()
    node.jobs(held_by(JOB, A))
    node.ticks(2)
    node.infos = [gpu(A, "5", minor="0")]
    node.tick(100.0)
    assert node.joules() == {JOB: 400.0 + 40_000.0}


def test_the_signal_of_a_gpu_is_kept_over_restarts_in_which_it_is_not_there() -> None:
    node = Node()
    node.more = [GpuActivitySignal("0", A, "sm")]
    node.ticks(3)
    node.restart(away_s=10.0)
    node.more = []
    node.ticks(3)
    node.take()
    assert [batch.baselines[A].signal for batch in node.batches] == ["sm", "sm"]
