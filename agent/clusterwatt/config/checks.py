"""What no setting can say alone: settings that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterator

from clusterwatt.config.model import Config, Grid
from clusterwatt.config.problems import nearest, shown


def contradictions(config: Config) -> Iterator[tuple[tuple[str, ...], str]]:
    """The dotted paths that do not go together, the one to change first, and what is wrong with it."""
    gpu, driver = config.collectors.gpu, config.driver
    cadence = f"collectors.gpu.every_seconds ({gpu.every_seconds:g})"
    if gpu.slow_seconds < gpu.every_seconds:
        yield (
            ("collectors.gpu.slow_seconds", "collectors.gpu.every_seconds"),
            f"expected at least {cadence}, got {gpu.slow_seconds:g}",
        )
    if driver.silent_seconds <= gpu.every_seconds:
        reason = "a driver host that reads so rarely would be taken for dead"
        yield (
            ("driver.silent_seconds", "collectors.gpu.every_seconds"),
            f"expected more than {cadence}, got {driver.silent_seconds:g}: {reason}",
        )
    ratios = config.node.power_feed_ratios
    for feed in sorted(config.node.power_feed_capacity_watts.keys() - ratios.keys()):
        yield (
            ("node.power_feed_capacity_watts", "node.power_feed_ratios"),
            f"{feed} is no feed of the node: node.power_feed_ratios does not name it",
        )
    if sum(ratios.values()) > 1.0 + 1e-9:
        yield ("node.power_feed_ratios",), f"expected a sum of at most 1, got {sum(ratios.values()):g}"
    path_pattern = config.training.job_from_path
    if path_pattern and "job" not in re.compile(path_pattern).groupindex:
        yield ("training.job_from_path",), "expected a group of the name job, as in /(?P<job>[0-9]+)/"
    if config.simulate.faults_file and not config.simulate.profile:
        involved = ("simulate.faults_file", "simulate.profile")
        yield involved, "faults are played on a simulated driver only: set simulate.profile"
    if config.simulate.replay_file and config.simulate.profile:
        yield ("simulate.replay_file", "simulate.profile"), "a driver is recorded or simulated, not both"
    yield from _grid(config.feeds.grid)


def _grid(grid: Grid) -> Iterator[tuple[tuple[str, ...], str]]:
    service = grid.service
    if grid.zone and not grid.grams_per_kwh and not service.url:
        from clusterwatt import intensity_table  # only who asks for a zone pays for the table

        if grid.zone not in intensity_table.rows():
            meant = nearest(grid.zone, intensity_table.rows())
            hint = f"; did you mean {meant}?" if meant else ""
            reason = "expected a country as FR, a state as US-TX, or WORLD, or set feeds.grid.grams_per_kwh"
            involved = ("feeds.grid.zone", "feeds.grid.grams_per_kwh", "feeds.grid.service.url")
            yield involved, f'not in the table: "{shown(grid.zone)}"{hint}: {reason}'
    above = "feeds.grid.service"
    if service.url and not service.value_path:
        yield (f"{above}.value_path", f"{above}.url"), "expected where the number stands in the answer"
    if service.header and not service.header_file:
        yield (f"{above}.header_file", f"{above}.header"), "expected the file with the value of the header"
    if service.header_file and not service.header:
        yield (f"{above}.header", f"{above}.header_file"), "expected the name of the header, as auth-token"
    if service.max_age_seconds < service.every_seconds:
        yield (
            (f"{above}.max_age_seconds", f"{above}.every_seconds"),
            f"expected at least every_seconds ({service.every_seconds:g}), got {service.max_age_seconds:g}",
        )
