"""What boards leave out of their queries, filled in: every selector is one cluster's, windows have names."""

from __future__ import annotations

import re

# A series of ours, a recorded one, or one that Prometheus makes itself.
SERIES = re.compile(
    r"(?<![\w:$\"])(?:(?:[a-z_]+:)?clusterwatt_\w+(?::\w+)?|ALERTS|up(?=\{)|scrape_duration_seconds)(?![\w\":])(?!\{cluster=~)(?P<open>\{)?"
)
OF_JOB = 'and on (instance, uuid) clusterwatt_gpu_allocated{job_id="$job_id"} > 0'
ON_NODES = 'and on (instance) clusterwatt_gpu_allocated{job_id="$job_id"} > 0'
SHORT = {"$ofjob": OF_JOB, "$onnodes": ON_NODES, "$r": "$__rate_interval"}
CLUSTER = 'cluster=~"$cluster"'
SELECTOR = re.compile(r"\{[^}]*\}(?:\[[^\]]*\])?")


def expand(expression: str) -> str:
    """The query as Grafana gets it.

    `$r` is the window of a rate, `$ofjob` and `$onnodes` keep the GPUs and the nodes of the chosen job.
    """
    for short, text in SHORT.items():
        expression = re.sub(rf"{re.escape(short)}(?!\w)", text.replace("\\", r"\\"), expression)
    return SERIES.sub(_of_cluster, expression)


def worst(count: int, labels: str, expression: str, *, lowest: bool = False) -> str:
    """The series of an expression that are highest, or lowest, at the end of the range.

    `topk` alone chooses anew at each step, and a few at a time become many lines.
    """
    written = expand(expression)
    at_the_end = SELECTOR.sub(lambda found: f"{found.group()} @ end()", written)
    return f"({written}) and on ({labels}) {'bottomk' if lowest else 'topk'}({count}, {at_the_end})"


def with_short_job(expression: str) -> str:
    """The series with the label `short`: a job's identifier that fits into a cell; of a UUID its begin."""
    return f'label_replace({expression}, "short", "$1", "job_id", "([^-]*).*")'


def _of_cluster(found: re.Match[str]) -> str:
    name = found.group().removesuffix("{")
    return f"{name}{{{CLUSTER}, " if found["open"] else f"{name}{{{CLUSTER}}}"
