"""What the agent says of itself."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class BuildInfo(Reading, frozen=True):
    """Version of the agent; present = the agent is alive."""

    version: str
    revision: str
    python: str


class CollectorState(Reading, frozen=True):
    """Whether a collector is good, and how old its newest good reading is."""

    collector: str
    up: float
    age_seconds: float
    stuck_seconds: float


class CollectorDuration(Reading, frozen=True):
    """Passes of a collector and the time that they took together."""

    collector: str
    duration_sum_seconds: float
    passes: float


class CollectorErrors(Reading, frozen=True):
    """Failures of a collector or of one of its items, by reason."""

    collector: str
    reason: str
    errors: float


class DriverHost(Reading, frozen=True):
    """How often the driver host was started anew."""

    restarts: float


class DriverCallDuration(Reading, frozen=True):
    """Driver calls of one function and the time they took, since the agent started.

    `counts`: how many took at most so long, for each of `nvml.call_times.BUCKETS`, and last how many at all.
    """

    call: str
    counts: tuple[float, ...]
    sum_seconds: float


class AgentProcess(Reading, frozen=True):
    """Cost of the agent's own processes. process: agent, driver_host."""

    process: str
    cpu_seconds: float
    memory_bytes: float


class HostPids(Reading, frozen=True):
    """1: the agent sees the node's own process ids, which are those that the driver knows."""

    visible: float


class SeriesCount(Reading, frozen=True):
    """Series on the page that was rendered last."""

    series: float


class SeriesDropped(Reading, frozen=True):
    """Rows that a table's limit, or the limit of the page, kept off it."""

    table: str
    dropped: float


class ConnectionsRefused(Reading, frozen=True):
    """Connections to the page that were closed without an answer, by what they ran into."""

    reason: str
    connections: float


class WebFileState(Reading, frozen=True):
    """The web configuration file: end of the certificate in force, and changes that could not be used."""

    certificate_expiry_timestamp_seconds: float | None
    reload_errors: float


class ConfigReload(Reading, frozen=True):
    """1: the newest configuration is in force; 0: the last reload was refused and the old one stands."""

    success: float


class TextFile(Reading, frozen=True):
    """A text file of another tool: when it was written, how often it was refused. refused: 1 = also now."""

    file: str
    last_modified_timestamp_seconds: float
    errors: float
    refused: float = 0.0


class TextFamily(Reading, frozen=True):
    """A family out of text files. kind: as in `# TYPE`, or untyped. samples: whole lines for the page."""

    name: str
    kind: str
    help: str
    samples: tuple[str, ...]
