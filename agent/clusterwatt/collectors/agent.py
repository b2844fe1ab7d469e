"""What the agent says about itself, as readings like any other."""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator

import psutil

from clusterwatt import __version__
from clusterwatt.catalog import CORE, FULL, STANDARD, Table
from clusterwatt.node_pids import NodePids
from clusterwatt.nvml.call_times import BUCKETS
from clusterwatt.readings.agent import (
    AgentProcess,
    BuildInfo,
    CollectorDuration,
    CollectorErrors,
    CollectorState,
    ConfigReload,
    ConnectionsRefused,
    DriverCallDuration,
    DriverHost,
    HostPids,
    SeriesCount,
    SeriesDropped,
    WebFileState,
)
from clusterwatt.readings.base import Reading

BUILD = Table(BuildInfo, labels=("version", "revision", "python"))
STATE = Table(CollectorState, labels=("collector",))
DURATION = Table(CollectorDuration, labels=("collector",))
ERRORS = Table(CollectorErrors, labels=("collector", "reason"))
HOST = Table(DriverHost)
CALLS = Table(DriverCallDuration, labels=("call",))
PROCESS = Table(AgentProcess, labels=("process",))
PIDS = Table(HostPids)
SERIES = Table(SeriesCount)
DROPPED = Table(SeriesDropped, labels=("table",))
REFUSED = Table(ConnectionsRefused, labels=("reason",))
RELOAD = Table(ConfigReload)
WEB_FILE = Table(WebFileState)

METRICS = (
    BUILD.info("build_info", "Version of the agent; present means alive."),
    STATE.gauge("collector_up", "1 while the collector's newest pass was good and is not stale.", "up"),
    STATE.gauge(
        "collector_age_seconds",
        "Age of the collector's newest good reading, from the agent's start until the first.",
        "age_seconds",
    ),
    STATE.gauge(
        "collector_stuck_seconds",
        "For how long the collector's outstanding call has hung; 0 when none has.",
        "stuck_seconds",
        STANDARD,
    ),
    DURATION.summary(
        "collector_duration_seconds",
        "Passes of the collector and the time they took.",
        "duration_sum_seconds",
        "passes",
        STANDARD,
    ),
    ERRORS.counter(
        "collector_errors_total",
        "Failures of the collector or of one of its items, by reason.",
        "errors",
        STANDARD,
    ),
    HOST.counter(
        "driver_host_restarts_total",
        "Driver hosts that were started after the first.",
        "restarts",
        STANDARD,
    ),
    CALLS.histogram(
        "driver_call_duration_seconds",
        "Calls of the driver by function, and the time they took; waits for events are left out.",
        "counts",
        "sum_seconds",
        BUCKETS,
        FULL,
    ),
    PROCESS.counter(
        "agent_cpu_seconds_total", "CPU time of the agent's own processes, user and system.", "cpu_seconds"
    ),
    PROCESS.gauge("agent_memory_bytes", "Resident memory of the agent's own processes.", "memory_bytes"),
    PIDS.gauge(
        "host_pids_visible",
        "0: the agent does not see the host's process ids, so processes on GPUs are not attributed.",
        "visible",
        STANDARD,
    ),
    SERIES.gauge("series", "Series on the page that was rendered last.", "series"),
    DROPPED.counter("series_dropped_total", "Rows that a limit kept off the page.", "dropped", CORE),
    REFUSED.counter(
        "http_connections_refused_total",
        "Connections closed without an answer: max_connections and max_connections_per_client (of settings), "
        "no_descriptors (of the system), busy (the request waited too long).",
        "connections",
        STANDARD,
    ),
    RELOAD.gauge(
        "config_last_reload_success",
        "1 while the newest configuration is in force, 0 when the last reload was refused.",
        "success",
    ),
    WEB_FILE.gauge(
        "tls_certificate_expiry_timestamp_seconds",
        "When the certificate that is served ends.",
        "certificate_expiry_timestamp_seconds",
        STANDARD,
    ),
    WEB_FILE.counter(
        "tls_reload_errors_total",
        "Looks at a changed web configuration file, certificate or key that could not be used; the old is.",
        "reload_errors",
        STANDARD,
    ),
)


def build_info() -> BuildInfo:
    """Version of the agent; the revision is set by whoever builds an image, empty otherwise."""
    return BuildInfo(
        version=__version__,
        revision=os.environ.get("CLUSTERWATT_REVISION", ""),
        python=platform.python_version(),
    )


class AgentCollector:
    """CPU time and memory of the agent's processes, and which it sees. The host's may end at any time."""

    name = "agent"

    def __init__(self, driver_host_pid: Callable[[], int | None], pids: NodePids) -> None:
        self._own = psutil.Process()
        self._driver_host_pid = driver_host_pid
        self._driver_host: psutil.Process | None = None
        self._pids = pids

    def collect(self) -> Iterator[Reading]:
        """One reading for each process that runs, and whether the node's are seen."""
        yield self._cost("agent", self._own)
        yield HostPids(visible=float(self._pids.visible()))
        pid = self._driver_host_pid()
        if pid is None:
            return
        try:
            if self._driver_host is None or self._driver_host.pid != pid:
                self._driver_host = psutil.Process(pid)
            yield self._cost("driver_host", self._driver_host)
        except psutil.Error:
            self._driver_host = None

    def _cost(self, name: str, process: psutil.Process) -> AgentProcess:
        with process.oneshot():
            times = process.cpu_times()
            return AgentProcess(
                process=name,
                cpu_seconds=times.user + times.system,
                memory_bytes=float(process.memory_info().rss),
            )
