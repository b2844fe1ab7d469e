"""A training-compute card: what it took to train, in the terms in which model documentation asks for it.

Hardware, time, data, compute, energy, carbon and money of one job, each with how it was found. What is not
known is said to be so, never guessed: compute comes from tokens where they are known, else it is estimated
from the activity of tensor cores and marked so.
"""

from __future__ import annotations

from typing import Any

import msgspec

from clusterwatt.accelerators import peak_flops
from clusterwatt.ledger.report import UsageRow
from clusterwatt.meters.carbon import JOULES_PER_KWH
from clusterwatt.meters.cost import SECONDS_PER_HOUR
from clusterwatt.report import period
from clusterwatt.report.formats import in_markdown
from clusterwatt.report.lines import line_of

UNKNOWN = "not known"
COUNTED = "tokens x FLOP per token of the model"
BY_TENSOR = "estimate: seconds of tensor activity x dense peak of the precision"


class Data(msgspec.Struct, frozen=True):
    """What was trained on, where somebody knows: tokens, model FLOP per token.

    `of_period`: the tokens are those of the period of which the card tells, not of the whole run.
    """

    tokens: float | None = None
    flops_per_token: float | None = None
    precision: str = "bf16"
    of_period: bool = False


class Compute(msgspec.Struct, frozen=True):
    """FLOP and how they were found; `mfu_ratio`: over the peak of all GPU seconds that were held."""

    flop: float | None
    method: str
    peak_flop_per_second: float | None
    mfu_ratio: float | None


def compute(row: UsageRow, data: Data) -> Compute:
    """The job's compute. Peaks are those of datasheets, without sparsity; several models have none."""
    peaks = {peak_flops(name).get(data.precision) for name in row.gpus}
    peak = peaks.pop() if len(peaks) == 1 else None
    seconds, tensor_s = row.totals.gpu_seconds, row.totals.tensor_seconds
    if data.tokens is not None and data.flops_per_token is not None:
        flop = data.tokens * data.flops_per_token
        mfu = flop / (seconds * peak) if seconds and peak else None
        return Compute(flop, COUNTED, peak, mfu)
    if peak is not None and tensor_s is not None:
        return Compute(tensor_s * peak, BY_TENSOR, peak, None)
    return Compute(None, UNKNOWN, peak, None)


def card(row: UsageRow, data: Data, source: str) -> dict[str, Any]:
    """The card as a document."""
    line = line_of(row)
    job, totals = None if row.record is None else row.record.job, row.totals
    started_s, ended_s = line.started_s, line.ended_s
    done = compute(row, data)
    return {
        "job": row.key,
        "name": "" if job is None else job.name,
        "source": source,
        "time": {
            "started": None if not started_s else period.with_zone(started_s),
            "ended": None if ended_s is None else period.with_zone(ended_s),
            "hours": _over(
                None if not started_s or ended_s is None else ended_s - started_s, SECONDS_PER_HOUR
            ),
        },
        "hardware": {
            "gpus": [{"model": model, "count": count} for model, count in sorted(row.gpus.items())],
            "gpu_hours": _over(totals.gpu_seconds, SECONDS_PER_HOUR),
            "idle_gpu_hours": _over(totals.idle_gpu_seconds, SECONDS_PER_HOUR),
            "activity_ratio": line.activity_ratio,
            "tensor_activity_ratio": line.tensor_ratio,
        },
        "data": {"tokens": data.tokens, "tokens_of": "period" if data.of_period else "run"},
        "compute": {
            "flop": done.flop,
            "method": done.method,
            "flops_per_token": data.flops_per_token,
            "precision": data.precision,
            "peak_flop_per_second_per_gpu": done.peak_flop_per_second,
            "mfu_ratio": done.mfu_ratio,
        },
        "energy": {
            "kwh": _over(line.joules, JOULES_PER_KWH),
            "by_component_kwh": {
                component: _over(joules, JOULES_PER_KWH)
                for component in ("gpu", "cpu", "dram", "other")
                if (joules := line.joules_by.get(component)) is not None
            },
            "by_method_kwh": {
                method: _over(joules, JOULES_PER_KWH)
                for method in ("counter", "integrated", "estimated")
                if (joules := line.joules_by.get(method)) is not None
            },
        },
        "carbon": {"operational_kg_co2e": _over(totals.carbon_grams, 1_000.0)},
        "cost": {
            currency: {
                "total": line.cost(currency),
                "energy": cost.energy,
                "gpus": cost.gpu,
                "idle": cost.idle,
            }
            for currency, cost in sorted(row.costs.items())
        },
        "coverage_ratio": line.coverage_ratio,
    }


def as_json(document: dict[str, Any]) -> str:
    """The card for machines."""
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def as_markdown(document: dict[str, Any]) -> str:
    """The card for a model's documentation."""
    hardware, done, energy, time = (document[name] for name in ("hardware", "compute", "energy", "time"))
    models = ", ".join(f"{gpu['count']} x {gpu['model']}" for gpu in hardware["gpus"])
    rows = [
        ("Job", document["job"] + (f" ({document['name']})" if document["name"] else "")),
        (
            "Time",
            f"{time['started'] or UNKNOWN} to {time['ended'] or 'now'}"
            + _unit(time["hours"], " (", " h)", 2),
        ),
        ("Processors", models or UNKNOWN),
        (
            "GPU hours",
            _unit(hardware["gpu_hours"], "", "", 2) + _unit(hardware["idle_gpu_hours"], ", idle: ", "", 2),
        ),
        ("Mean activity", _percent(hardware["activity_ratio"])),
        ("Mean tensor activity", _percent(hardware["tensor_activity_ratio"])),
        (
            "Tokens in the period" if document["data"]["tokens_of"] == "period" else "Training data, tokens",
            _unit(document["data"]["tokens"], "", "", 0) or UNKNOWN,
        ),
        ("Training compute, FLOP", UNKNOWN if done["flop"] is None else f"{done['flop']:.3e}"),
        ("How compute was found", f"{done['method']} ({done['precision']})"),
        ("Model FLOP utilisation", _percent(done["mfu_ratio"])),
        ("Energy of the computers", _unit(energy["kwh"], "", " kWh", 3) or UNKNOWN),
        ("How energy was found", _shares(energy["by_method_kwh"]) or UNKNOWN),
        (
            "Operational carbon",
            _unit(document["carbon"]["operational_kg_co2e"], "", " kg CO2e", 3) or UNKNOWN,
        ),
        *(
            (f"Cost, {currency}", _unit(cost["total"], "", "", 2))
            for currency, cost in document["cost"].items()
        ),
        ("Time observed", _percent(document["coverage_ratio"])),
        ("Source", document["source"]),
    ]
    lines = ["| Training compute | |", "|---|---|"]
    return "\n".join([*lines, *(f"| {name} | {in_markdown(text)} |" for name, text in rows)]) + "\n"


def _over(amount: float | None, unit: float) -> float | None:
    return None if amount is None else amount / unit


def _unit(amount: float | None, before: str, after: str, digits: int) -> str:
    return "" if amount is None else f"{before}{amount:.{digits}f}{after}"


def _percent(share: float | None) -> str:
    return UNKNOWN if share is None else f"{share * 100:.1f} %"


def _shares(amounts: dict[str, float]) -> str:
    total = sum(amounts.values())
    return (
        ", ".join(f"{name} {amount / total * 100:.0f} %" for name, amount in amounts.items()) if total else ""
    )
