"""Scenarios as other scrapes would have seen them: more often, one missed, over a restart, twice."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

Scenario = dict[str, Any]
Sample = float | str | None  # None: no sample; a text: `stale`

NUMBER = r"[\d.]+(?:[eE][+-]?\d+)?"
RUN = re.compile(
    rf"(?P<start>-?{NUMBER})(?P<step>[+-]{NUMBER})?x(?P<count>\d+)|(?P<gap>_)(?:x(?P<gaps>\d+))?"
)
# What the agent itself adds up from its start.
OF_THE_AGENT = re.compile(
    r"clusterwatt_(gpu_(activity|busy|state|energy|throttle)_\w+|training_nonfinite)_total\b"
)


def resampled(scenario: Scenario, every_s: int) -> Scenario:
    """The same course of things, scraped more often than every minute."""
    times = 60 // every_s
    series = []
    for entry in scenario["input_series"]:
        values = [
            value
            for now, later in _pairs(_samples(entry["values"]))
            for value in _between(now, later, times, counts="_total{" in entry["series"])
        ]
        series.append({**entry, "values": _text(values)})
    return {**scenario, "interval": f"{every_s}s", "input_series": series}


def without(scenario: Scenario, first: int, every: int) -> Scenario:
    """The scenario with one scrape in `every` missed."""

    def missed(at: int, value: Sample) -> Sample:
        return None if at % every == first and not isinstance(value, str) else value

    series = [
        {**entry, "values": _text([missed(at, value) for at, value in enumerate(_samples(entry["values"]))])}
        for entry in scenario["input_series"]
    ]
    return {**scenario, "name": f"{scenario['name']}, missed {first}", "input_series": series}


def restarted(scenario: Scenario, *, at: int) -> Scenario:
    """The scenario with a restart of the agent: sample `at` is missing, its counters begin at 0."""
    series = []
    for entry in scenario["input_series"]:
        values = _samples(entry["values"])
        before = values[at] if at < len(values) else None
        if isinstance(before, float):
            base = before if OF_THE_AGENT.match(entry["series"]) else 0.0
            values = [
                *values[:at],
                None,
                *(value - base if isinstance(value, float) else value for value in values[at + 1 :]),
            ]
        series.append({**entry, "values": _text(values)})
    return {**scenario, "name": f"{scenario['name']}, restarted at {at}", "input_series": series}


def twice(scenario: Scenario, of_targets: frozenset[str]) -> Scenario:
    """The scenario with every series a second time, by another scrape job and with other GPU indices.

    What names job or index is expected a second time, but alerts `of_targets`, which ask for one scrape job.
    """
    checks = [
        {**check, "exp_alerts": [*check["exp_alerts"], *_other_alerts(check["exp_alerts"])]}
        if check["alertname"] not in of_targets
        else check
        for check in scenario.get("alert_rule_test", ())
    ]
    queries = [
        {**query, "exp_samples": [*query["exp_samples"], *_other_samples(query["exp_samples"])]}
        for query in scenario.get("promql_expr_test", ())
    ]
    series = [
        {**entry, "series": series}
        for entry in scenario["input_series"]
        for series in (entry["series"], _twin(entry["series"]))
    ]
    return {**scenario, "input_series": series, "alert_rule_test": checks, "promql_expr_test": queries}


def _other_alerts(alerts: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for alert in alerts:
        labels = alert["exp_labels"]
        other = {"job": "again"} if "job" in labels else {}
        other |= {"gpu": f"1{labels['gpu']}"} if "gpu" in labels else {}
        if other:
            yield {**alert, "exp_labels": labels | other}


def _other_samples(samples: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    for sample in samples:
        labels = sample.get("labels", "")
        if _twin(labels) != labels:
            yield {**sample, "labels": _twin(labels)}


def _twin(series: str) -> str:
    return re.sub(r'\bgpu="(\d+)"', r'gpu="1\1"', series.replace('job="clusterwatt"', 'job="again"'))


def _samples(notation: str) -> list[Sample]:
    """The samples that promtool makes of its notation."""
    samples: list[Sample] = []
    for word in str(notation).split():
        run = RUN.fullmatch(word)
        if run is None:
            samples.append("stale" if word == "stale" else float(word))
        elif run["gap"]:
            samples += [None] * int(run["gaps"] or 1)
        else:
            step = float(run["step"] or 0)
            samples += [float(run["start"]) + step * at for at in range(int(run["count"]) + 1)]
    return samples


def _pairs(samples: list[Sample]) -> list[tuple[Sample, Sample]]:
    return list(zip(samples, [*samples[1:], None], strict=True))


def _between(now: Sample, later: Sample, times: int, *, counts: bool) -> list[Sample]:
    """What is seen from one minute to the next: a counter moves evenly, all else stands still."""
    if isinstance(now, float) and isinstance(later, float) and counts and later >= now:
        return [now + (later - now) * part / times for part in range(times)]
    if now is None or isinstance(now, str):
        return [now, *[None] * (times - 1)]
    return [now] * times


def _text(samples: list[Sample]) -> str:
    return " ".join(
        "_" if value is None else value if isinstance(value, str) else f"{value:.10g}" for value in samples
    )
