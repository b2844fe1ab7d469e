"""What no setting can say alone: settings that contradict each other, and settings that do nothing yet."""

from __future__ import annotations

from collections.abc import Iterator

from clusterwatt.config.model import Config, Ledger


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
    if config.simulate.faults_file and not config.simulate.profile:
        yield ("simulate.faults_file",), "faults are played on a simulated driver only: set simulate.profile"
    if config.simulate.replay_file and config.simulate.profile:
        yield ("simulate.replay_file", "simulate.profile"), "a driver is recorded or simulated, not both"


def not_in_use(config: Config) -> list[str]:
    """A line for each setting that is accepted, was changed, and has no effect in this version."""
    notes = []
    if config.ledger.path != Ledger().path:
        notes.append("ledger.path has no effect yet: this version keeps no ledger")
    if config.training.directories:
        notes.append("training.directories has no effect yet: this version does not read training runs")
    return notes
