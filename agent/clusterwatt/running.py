"""Runs the agent until a signal ends it, for one page, or to record what the driver answers.

Nobody but the command line imports this file.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path

from clusterwatt import descriptors, program, sdnotify
from clusterwatt.app import Agent, StartError, host_settings
from clusterwatt.clock import SystemClock
from clusterwatt.config.model import Config
from clusterwatt.driver import holding
from clusterwatt.expose.web_file import WebFile
from clusterwatt.nvml.bundle import BundleError
from clusterwatt.readings.snapshot import Snapshot

log = logging.getLogger("clusterwatt")

FIRST_PAGE_WITHIN_S = 5.0


def run(config: Config, reload: Callable[[], Config]) -> int:
    """Run until SIGTERM or SIGINT; returns the exit status. Raises StartError or ConfigError.

    SIGHUP calls `reload`, which raises what it finds wrong with the new configuration.
    """
    descriptors.raise_limit()
    try:
        return asyncio.run(_run(config, reload))
    finally:
        program.end_all()  # that of a pass which went on to its next program while the agent stopped


async def _run(config: Config, reload: Callable[[], Config]) -> int:
    named = config.http.web_config_file
    web_file = WebFile(named, SystemClock()) if named else None
    agent = Agent(config, SystemClock())
    agent.site.use_web_file(web_file)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    loop.add_signal_handler(signal.SIGHUP, lambda: _reload(agent, reload))
    loop.add_signal_handler(signal.SIGUSR1, agent.release_driver)
    loop.add_signal_handler(signal.SIGUSR2, agent.freeze)
    # Those that came before are delivered now: the command line holds them back.
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2))
    try:
        address = await agent.site.start(config.http)
    except OSError as error:
        raise StartError(str(error)) from None
    log.info("listening on %s", address.url)
    agent.site.on_publish(_watchdog())
    try:
        await agent.pipeline.run(stop)
    finally:
        sdnotify.notify("STOPPING=1")
        program.end_all()
        await agent.site.stop()
        agent.stop()
    return 0


def _watchdog() -> Callable[[Snapshot], None]:
    """Tell systemd of the first snapshot and of each one after it."""
    first = True

    def published(_: Snapshot) -> None:
        nonlocal first
        sdnotify.notify("READY=1" if first else "WATCHDOG=1")
        if first:
            _set_aside()
        first = False

    return published


def _set_aside() -> None:
    """Keep the garbage collector from what lasts: it would hold up a scrape for 20 ms to look through it."""
    gc.unfreeze()  # what a reload has put out of use may go
    gc.collect()
    gc.freeze()


def _reload(agent: Agent, reload: Callable[[], Config]) -> None:
    try:
        agent.apply(reload())
    except Exception as error:  # whatever is wrong with the new configuration, the old one stands
        for line in str(error).splitlines():
            log.error("reload: %s", line)
        agent.reload_failed()
    else:
        log.info("configuration reloaded")
        agent.reload_succeeded()
        _set_aside()


def once(config: Config) -> int:
    """Print one page and end; returns the exit status. Raises StartError."""
    try:
        return asyncio.run(_once(config))
    finally:
        program.end_all()


async def _once(config: Config) -> int:
    clock = SystemClock()
    agent = Agent(config, clock, keeps_ledger=False)  # an agent that runs may keep it
    deadline_s = clock.monotonic_s() + FIRST_PAGE_WITHIN_S
    while True:
        await agent.pipeline.tick()
        if agent.driver is None or agent.driver.spoke or clock.monotonic_s() > deadline_s:
            break
    page = await agent.site.page()
    sys.stdout.buffer.write(page.body)
    sys.stdout.flush()
    agent.stop()
    return 0


def capture(config: Config, path: Path, seconds: float, *, pseudonyms: bool) -> int:
    """Record what the driver answers into a bundle; returns the exit status. Raises StartError.

    SIGINT and SIGTERM end the recording early; what there is then is written.
    """
    from clusterwatt.driver import recording  # loads the binding, which the agent itself never does

    if config.simulate.label == "false" and holding.ReleaseFlag(config.driver.release_file).look().everything:
        raise StartError(
            f"the driver is released ({config.driver.release_file}): `clusterwatt driver resume`"
        )
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    try:
        manifest = recording.record(
            path, host_settings(config), SystemClock(), seconds, pseudonyms=pseudonyms, stop=stop
        )
    except (recording.NoDriverError, BundleError) as error:
        raise StartError(str(error)) from None
    size_bytes = path.stat().st_size
    sys.stdout.write(f"{path}: {manifest.calls} calls in {manifest.seconds:.0f} s, {size_bytes} bytes\n")
    if not manifest.complete:
        sys.stdout.write("The bundle is full: calls after that are not in it.\n")
    return 0
