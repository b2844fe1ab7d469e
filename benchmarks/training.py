"""What it costs to follow live training runs.

    python -m benchmarks.training [--runs 200] [--tags 50] [--seconds 30] [--exported]

Each run logs each of its tags once a second, as tensorboardX writes it: `--tags 50` is 50 events. Ten of the
tags have a meaning, as in a real run; with `--exported` all go out under their own name. Time does not pass,
so the figure is the CPU time of one pass for each `every_seconds` of events, with nothing between the passes.
"""

from __future__ import annotations

import argparse
import resource
import statistics
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.clocks import FakeClock
from tests.training.event_bytes import VERSION, scalar

from clusterwatt.config.model import Training
from clusterwatt.training.collector import TrainingCollector

MEANT = (
    "train/loss",
    "eval/loss",
    "train/grad_norm",
    "train/learning_rate",
    "train/num_input_tokens_seen",
    "train/tokens_per_second",
    "train/samples_per_second",
    "train/step_time",
    "eval/accuracy",
    "train/loss_scale",
)
WARM_UP = 3


class Cost(NamedTuple):
    """CPU seconds of the passes, and what they read; bytes by which memory grew in the second half.

    Each pass is taken to cost what the one in the middle does: a machine that does other things besides makes
    single ones dearer.
    """

    cpu_s: float
    events: int
    covered_s: float
    grown_bytes: int

    @property
    def share_of_core(self) -> float:
        return self.cpu_s / self.covered_s

    @property
    def microseconds_an_event(self) -> float:
        return self.cpu_s / self.events * 1e6


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def names(tags: int) -> list[str]:
    return [*MEANT[:tags], *(f"layers/{number}/attention_entropy" for number in range(tags - len(MEANT)))]


def measure(runs: int, tags: int, seconds: int, *, exported: bool = False) -> Cost:
    """Let runs write, and follow them."""
    wall_s = time.time()
    clock = FakeClock(wall_s=wall_s)
    settings = Training(directories=("",), scalars=(".*",) if exported else ())
    every_s = settings.every_seconds
    logged = names(tags)
    grown, events = 0, 0
    of_pass_s: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        paths = [
            Path(folder, f"run{run}", f"events.out.tfevents.{wall_s:.0f}.here.1.0") for run in range(runs)
        ]
        for path in paths:
            path.parent.mkdir()
            path.write_bytes(VERSION)
        collector = TrainingCollector(folder, settings, clock, host="here")
        step, passes = 0, max(2, round(seconds / every_s))
        for number in range(WARM_UP + passes):
            content = b""
            for _ in range(round(every_s)):
                step += 1
                content += b"".join(
                    scalar(tag, 1 / (step + place), 10_000 + step, wall_s + step)
                    for place, tag in enumerate(logged)
                )
            for path in paths:
                with path.open("ab") as file:
                    file.write(content)
            clock.advance(every_s)
            if number == WARM_UP + passes // 2:
                grown = -resident_bytes()
            began_s = time.process_time()
            readings = sum(1 for _ in collector.collect())
            if number >= WARM_UP:
                of_pass_s.append(time.process_time() - began_s)
                events += runs * tags * round(every_s)
            assert readings > runs or number == 0
        grown += resident_bytes()
    return Cost(statistics.median(of_pass_s) * passes, events, passes * every_s, grown)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--tags", type=int, default=50)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--exported", action="store_true", help="all tags go out under their own name")
    arguments = parser.parse_args()
    cost = measure(arguments.runs, arguments.tags, arguments.seconds, exported=arguments.exported)
    print(f"{arguments.runs} runs, {arguments.tags} tags, each logged once a second")
    print(f"CPU          {cost.share_of_core:.2%} of a core (budget 2%)")
    print(f"an event     {cost.microseconds_an_event:.2f} us")
    print(f"memory grew  {cost.grown_bytes / 1024:.0f} KiB in the second half")


if __name__ == "__main__":
    main()
