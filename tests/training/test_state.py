"""What is known of a run: the newest by wall time, counters that mislead nobody, no value that is none."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.readings.training import TrainingNonfinite, TrainingQuality
from clusterwatt.training.state import LossScale, RunState, TokensTotal

T0 = 1_700_000_000.0


def nonfinite(state: RunState) -> dict[str, float]:
    return {each.tag: each.nonfinite for each in state.readings() if isinstance(each, TrainingNonfinite)}


def losses(state: RunState) -> dict[str, float | None]:
    return {each.split: each.loss for each in state.readings() if isinstance(each, TrainingQuality)}


@given(st.permutations([(step, T0 + at) for at, step in enumerate([1, 2, 3, 1, 2, 9])]))
def test_the_newest_by_wall_time_stands_in_whatever_order_it_comes(events: list[tuple[int, float]]) -> None:
    state = RunState("run")
    for step, wall_s in events:
        state.take("train_loss", wall_s - T0, step, wall_s)
    assert state.progress().step == 9
    assert losses(state) == {"train": 5.0}
    assert state.progress().last_event_timestamp_seconds == T0 + 5


def test_of_two_values_at_one_time_the_later_stands() -> None:
    state = RunState("run")
    state.take("train_loss", 1.0, 1, T0)
    state.take("train_loss", 2.0, 2, T0)
    assert (losses(state)["train"], state.progress().step) == (2.0, 2)


def test_both_splits_stand_side_by_side() -> None:
    state = RunState("run")
    state.take("train_loss", 1.0, 1, T0)
    state.take("eval_loss", 2.0, 1, T0)
    assert losses(state) == {"train": 1.0, "eval": 2.0}


def test_nothing_is_shown_of_what_was_not_logged() -> None:
    state = RunState("run")
    state.take("learning_rate", 0.5, 1, T0)
    assert losses(state) == {}
    progress = state.progress()
    assert (progress.learning_rate, progress.gradient_norm, progress.tokens_total) == (0.5, None, None)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "quantity",
    ["learning_rate", "tokens_total", "tokens_per_second", "step_duration_seconds", "train_accuracy", "step"],
)
def test_no_quantity_shows_a_value_that_is_none(quantity: str, value: float) -> None:
    state = RunState("run")
    state.take(quantity, 2.0, 1, T0)  # type: ignore[arg-type]  # the parameters are quantities
    state.take(quantity, value, 2, T0 + 1)  # type: ignore[arg-type]  # the parameters are quantities
    for reading in state.readings():
        for field in type(reading).__struct_fields__:
            shown = getattr(reading, field)
            assert not isinstance(shown, float) or math.isfinite(shown)
    assert nonfinite(state) == {"loss": 0, "gradient_norm": 0}


def test_an_old_value_that_is_not_finite_is_counted_and_does_not_hide_the_newest() -> None:
    state = RunState("run")
    state.take("train_loss", 1.0, 2, T0 + 1)
    state.take("train_loss", math.nan, 1, T0)
    assert losses(state) == {"train": 1.0}
    assert nonfinite(state)["loss"] == 1


def test_steps_that_count_iterations_stand_before_others() -> None:
    state = RunState("run")
    state.take("train_loss", 1.0, 3, T0, counts_iterations=False)
    assert state.progress().step == 3  # epochs, until something better is known
    state.take("train_loss", 1.0, 700, T0 + 1)
    state.take("train_loss", 1.0, 4, T0 + 2, counts_iterations=False)
    state.seen(99_999, T0 + 3)
    assert state.progress().step == 700
    assert state.progress().last_event_timestamp_seconds == T0 + 3


def test_the_time_of_a_step_is_the_mean_of_the_newest() -> None:
    state = RunState("run")
    for step in range(25):
        state.take("step_duration_seconds", float(step), step, T0 + step)
    assert state.progress().step_duration_seconds == sum(range(15, 25)) / 10


def test_there_is_a_bound_on_further_scalars() -> None:
    state = RunState("run")
    for number in range(1000):
        state.take_scalar(f"tag{number}", 1.0, 1, T0)
    assert sum(1 for reading in state.readings() if type(reading).__name__ == "TrainingScalar") == 256


@pytest.mark.parametrize(
    ("logged", "shown"),
    [
        ([100, 200, 300], [100, 200, 300]),
        ([100, 200, 150, 180, 210], [100, 200, 200, 200, 210]),  # resumed from a checkpoint
        ([1000, 0, 100, 1100], [1000, 0, 100, 1100]),  # begun anew in the old folder
        ([0, 5], [0, 5]),
        ([5, -1, 6], [5, 5, 6]),
    ],
)
def test_tokens_fall_only_where_a_counter_begins_anew(logged: list[float], shown: list[float]) -> None:
    tokens = TokensTotal()
    seen = []
    for number in logged:
        tokens.take(number)
        seen.append(tokens.total)
    assert seen == shown


def scaled(*steps: tuple[float | None, float | None]) -> int:
    """How many norms are counted of steps of (scale, norm), in the order in which they are logged."""
    scales, counted = LossScale(), 0
    for step, (scale, norm) in enumerate(steps):
        if scale is not None:
            counted += scales.logged(scale, step)
        if norm is not None:
            counted += scales.norm(step, finite=math.isfinite(norm))
    return counted


def test_a_step_that_loss_scaling_skips_is_not_counted() -> None:
    inf = math.inf
    assert scaled((65536, 1.0), (32768, inf), (32768, 1.0)) == 0  # the scale is logged after it fell
    assert scaled((65536, 1.0), (65536, inf), (32768, 1.0)) == 0  # or before
    assert scaled((65536, 1.0), (65536, inf), (65536, 1.0)) == 1  # the scale did not fall: it is broken
    assert scaled((65536, inf), (32768, inf), (16384, inf), (16384, 1.0)) == 0  # the search at the beginning
    assert scaled((None, 1.0), (None, inf), (None, inf)) == 2  # no scaling, no excuse


def test_norms_that_are_broken_are_counted_at_latest_with_the_next() -> None:
    assert scaled((1024, 1.0), (None, math.nan), (None, 1.0)) == 1
