from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterwatt.training.report import MAX_BODY_BYTES, FaultyReportError, Report, parse

ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)
KEYS = ("run", "job", "framework", "time", "step", "tokens", "phase", "scalars", "nonfinite", "gpus", "x")


def faults(body: bytes | str | object) -> list[str]:
    if not isinstance(body, bytes | str):
        body = json.dumps(body)
    with pytest.raises(FaultyReportError) as refused:
        parse(body if isinstance(body, bytes) else body.encode())
    return refused.value.faults


def parsed(body: bytes) -> Report | list[str]:
    """The report, or its faults."""
    try:
        return parse(body)
    except FaultyReportError as refused:
        return refused.faults


def test_a_full_report() -> None:
    body = {
        "run": "llama/run 1",
        "job": "slurm/4711",
        "framework": "PyTorch",
        "time": 1_700_000_000.5,
        "step": 10,
        "tokens": 2**53,
        "phase": "train",
        "phase_time": 1_699_999_000,
        "scalars": {"loss": 2.5, "lr": 0},
        "nonfinite": {"loss": 3},
        "flops_per_token": 4.844e10,
        "precision": "bf16",
        "gpus": 8,
    }
    assert parse(json.dumps(body).encode()) == Report(
        run="llama/run 1",
        job="slurm/4711",
        framework="PyTorch",
        time_s=1_700_000_000.5,
        step=10.0,
        tokens=float(2**53),
        phase="train",
        phase_time_s=1_699_999_000.0,
        scalars={"loss": 2.5, "lr": 0.0},
        nonfinite={"loss": 3},
        flops_per_token=4.844e10,
        precision="bf16",
        gpus=8.0,
    )


def test_a_run_alone_is_a_report() -> None:
    assert parse(b'{"run":"a"}') == Report(run="a")


@pytest.mark.parametrize(
    "written", ["NaN", "Infinity", "-Infinity", '"nan"', '"NaN"', '"inf"', '"-inf"', '"+Infinity"', "1e999"]
)
def test_what_is_not_finite_is_counted_and_has_no_value(written: str) -> None:
    report = parse(b'{"run":"a","scalars":{"loss":%s,"lr":0.1}}' % written.encode())
    assert report.scalars == {"lr": 0.1}
    assert report.nonfinite == {"loss": 1}


def test_a_value_that_is_not_finite_adds_to_those_that_were_counted_before() -> None:
    assert parse(b'{"run":"a","scalars":{"loss":NaN},"nonfinite":{"loss":2}}').nonfinite == {"loss": 3}


@pytest.mark.parametrize(
    ("key", "value", "line"),
    [
        ("run", "", 'run: expected up to 200 printable characters, no space at either end, got ""'),
        ("run", "a\nb", 'got "a\\nb"'),
        ("run", "a\u202eb", "printable"),
        ("run", "a" * 201, '"' + "a" * 59 + "..."),
        ("run", 5, "got 5.0"),
        ("job", "4711", 'job: expected a job such as slurm/4711, got "4711"'),
        ("job", "slurm/4711 ", "expected a job"),
        ("framework", "f" * 65, "up to 64"),
        ("time", -1, "time: expected a number from 0"),
        ("time", "2023-11-14", 'got "2023-11-14"'),
        ("step", True, "step: expected a number from 0 to 9.0072e+15, got true"),
        ("step", None, "got null"),
        ("step", -1, "got -1.0"),
        ("tokens", 10**30, "tokens: expected a number from 0"),
        ("phase", "training", "phase: expected one of warmup, train, eval, checkpoint"),
        ("scalars", [], "scalars: expected an object with up to 256 tags, got a list of 0"),
        ("scalars", {"loss": "high"}, 'scalars: expected a number for "loss", got "high"'),
        ("scalars", {"loss": {}}, "got an object of 0"),
        ("scalars", {"": 1}, "printable"),
        ("scalars", dict.fromkeys(map(str, range(257)), 1), "got an object of 257"),
        ("nonfinite", {"loss": 0.5}, "a whole number"),
        ("nonfinite", {"loss": -1}, "a whole number"),
        ("nonfinite", {"loss": 1001}, "a whole number from 1 to 1000"),
        ("flops_per_token", 0, "flops_per_token: expected a number from 1"),
        ("precision", "bfloat16", "precision: expected one of bf16, fp16"),
        ("gpus", 2.5, "gpus: expected a whole number from 1"),
    ],
)
def test_each_fault_is_named_with_what_was_expected(key: str, value: object, line: str) -> None:
    (said,) = faults({"run": "a"} | {key: value})
    assert said.startswith(f"{key}: ")
    assert line in said


def test_all_faults_are_named_at_once() -> None:
    known = "run, job, framework, time, step, tokens, phase, phase_time, scalars, nonfinite, flops_per_token"
    assert faults({"runs": "a", "step": -1, "phase": 1}) == [
        f'"runs": unknown key; known are {known}, precision, gpus',
        "step: expected a number from 0 to 9.0072e+15, got -1.0",
        "phase: expected one of warmup, train, eval, checkpoint, got 1.0",
        "run: missing; it names the run",
    ]


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("key", ["time", "step", "tokens", "flops_per_token", "gpus"])
def test_only_scalars_may_be_not_finite(key: str, value: float) -> None:
    assert faults({"run": "a", key: value})[0].startswith(f"{key}: expected")


@pytest.mark.parametrize(
    ("body", "line"),
    [
        (b"", "the body is not JSON in UTF-8: "),
        (b"\xff\xfe", "the body is not JSON in UTF-8: "),
        (b"[" * 20_000, "nested too deeply"),
        (b"[1]", "expected an object, got a list of 1"),
        (b'{"run":"a","run":"b"}', '"run": given twice'),
        (b'{"run":"a","scalars":{"x":1,"x":2}}', '"x": given twice'),
        (b'{"run":"a"} x', "Extra data"),
        (b" " * (MAX_BODY_BYTES + 1), "more than 65536 bytes"),
        (b'{"run":"\\ud800"}', "printable"),
    ],
)
def test_what_is_no_report_is_said_in_a_line(body: bytes, line: str) -> None:
    (said,) = faults(body)
    assert line in said
    assert "\n" not in said


def test_a_body_of_faults_does_not_give_a_book_of_lines() -> None:
    assert len(faults({f"k{n}": 1 for n in range(1000)})) == 21


@given(st.binary(max_size=300) | ANY_JSON.map(lambda tree: json.dumps(tree).encode()))
def test_no_bytes_bring_it_down(body: bytes) -> None:
    assert parsed(body) != []


@given(st.dictionaries(st.sampled_from(KEYS), ANY_JSON).map(lambda tree: {"run": "a"} | tree))
def test_whatever_is_under_a_key_the_report_is_finite_and_bounded(tree: dict[str, object]) -> None:
    report = parsed(json.dumps(tree).encode())
    if isinstance(report, list):
        assert all(line.isprintable() for line in report)
        return
    numbers = [report.time_s, report.step, report.tokens, report.gpus, *report.scalars.values()]
    assert all(math.isfinite(number) for number in numbers if number is not None)
    assert 0 < len(report.run) <= 200
