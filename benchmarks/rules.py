"""What the rules cost a Prometheus: the time of one evaluation of every group, over a history of many nodes.

python -m benchmarks.rules [--nodes 100] [--minutes 20]

Two pages of a simulated node with eight GPUs, a minute apart, say how its series move; every node of the
history moves like that. Only series that the rules ask for are written.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
from tests.e2e import servers
from tests.fleet.fleets import Ticking, settings
from tests.tools import apt

from clusterwatt.rules import expression, shipped

EVERY_S = 60
AHEAD_S = 240  # the history goes on beyond now, so that the evaluations find fresh samples
SAMPLE = re.compile(r"^(clusterwatt_\w+)(?:\{([^}\n]*)\})? (\S+)$", re.MULTILINE)
RULES = Path(__file__).parents[1] / "deploy/prometheus/rules"


def asked_for() -> set[str]:
    """Families that a rule names."""
    texts = (expression.plain(rule.expression) for file in shipped.files() for rule in file.rules)
    return {name for text in texts for name in re.findall(r"(?<![\w:])clusterwatt_\w+(?!\w*:)", text)}


async def pages(folder: Path, wall_s: float) -> tuple[dict[str, float], dict[str, float]]:
    """The series of a node, and the same a minute later."""
    ticking = Ticking(settings(4), folder, wall_s=wall_s - 600)
    try:
        await ticking.tick(120, step_s=1.0)
        first = (await ticking.fleet.nodes[0].site.page()).body.decode()
        await ticking.tick(60, step_s=1.0)
        second = (await ticking.fleet.nodes[0].site.page()).body.decode()
    finally:
        await ticking.close()
    names = asked_for()
    read = [
        {f"{name} {labels}": float(value) for name, labels, value in SAMPLE.findall(page) if name in names}
        for page in (first, second)
    ]
    return read[0], read[1]


def history(
    nodes: int, first: dict[str, float], second: dict[str, float], begin_s: float, end_s: float
) -> Iterator[str]:
    """The samples of all nodes as OpenMetrics text."""
    for node in range(nodes):
        instance = f"node-{node + 1:04}"
        target = f'job="clusterwatt",instance="{instance}"'
        for series, value in first.items():
            name, _, labels = series.partition(" ")
            # Eight nodes to a job, GPUs of their own to every node.
            labels = labels.replace('uuid="GPU-', f'uuid="GPU-{node:04x}').replace(
                "slurm/", f"slurm/{node // 8}"
            )
            slope = (second.get(series, value) - value) / EVERY_S if name.endswith("_total") else 0.0
            told = ",".join(part for part in (target, labels) if part)
            at_s = begin_s
            while at_s <= end_s:
                yield f"{name}{{{told}}} {value + slope * (at_s - begin_s):.10g} {at_s:.0f}\n"
                at_s += EVERY_S
        yield from (
            f"up{{{target}}} 1 {begin_s + at * EVERY_S:.0f}\n"
            for at in range(int((end_s - begin_s) // EVERY_S))
        )
    yield "# EOF\n"


def evaluation_s(store: str) -> dict[str, float] | None:
    """Seconds of the last evaluation by group; None while one of them is missing."""
    groups = json.loads(servers.get(f"{store}/api/v1/rules"))["data"]["groups"]
    took = {group["name"]: float(group["evaluationTime"]) for group in groups}
    return took if took and all(took.values()) else None


def measure(nodes: int, minutes: int) -> None:
    """Print what it takes."""
    promtool, program = apt.fetch("promtool"), apt.fetch("prometheus")
    with tempfile.TemporaryDirectory(prefix="clusterwatt-bench-") as name:
        folder = Path(name)
        now_s = time.time()
        first, second = asyncio.run(pages(folder / "fleet", now_s))
        text = folder / "history.txt"
        with text.open("w") as file:
            file.writelines(history(nodes, first, second, now_s - 60 * minutes, now_s + AHEAD_S + nodes))
        made: list[str | Path] = [
            promtool,
            "tsdb",
            "create-blocks-from",
            "openmetrics",
            text,
            folder / "tsdb",
        ]
        subprocess.run(made, check=True, stdout=subprocess.DEVNULL)
        text.unlink()
        config, log, port = folder / "prometheus.yml", folder / "log", servers.free_port()
        config.write_text(f"global: {{evaluation_interval: 1m}}\nrule_files: ['{RULES}/*.yaml']\n")
        command: list[str | Path] = [
            program,
            f"--config.file={config}",
            f"--storage.tsdb.path={folder / 'tsdb'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        with servers.running(command, log) as process:
            url = f"http://127.0.0.1:{port}"
            servers.wait_for(process, log, lambda: servers.answers(f"{url}/-/ready"), "ready")
            time.sleep(70)  # the second evaluation finds the records of the first
            watched = psutil.Process(process.pid)
            before_s = sum(watched.cpu_times()[:2])
            time.sleep(60)
            cpu_s = sum(watched.cpu_times()[:2]) - before_s
            took = servers.until(lambda: evaluation_s(url), 70, "an evaluation of every group")
    # Processor time is the honest figure of a machine that others use as well.
    print(
        f"{nodes} nodes, {len(first)} series each, {minutes} min: a cycle takes {cpu_s:.2f} s of CPU, ",
        end="",
    )
    print(f"{sum(took.values()):.2f} s by the clock of this machine")
    for group, seconds in sorted(took.items(), key=lambda entry: -entry[1]):
        print(f"  {group:28} {seconds:.3f} s")


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, default=100)
    parser.add_argument("--minutes", type=int, default=20)
    arguments = parser.parse_args()
    measure(arguments.nodes, arguments.minutes)


if __name__ == "__main__":
    main()
