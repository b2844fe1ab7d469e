"""The composition root: builds the agent from a configuration, and builds anew what a reload changes."""

from __future__ import annotations

import logging
import os
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import msgspec

from clusterwatt.bookkeeping import Bookkeeping
from clusterwatt.clock import Clock
from clusterwatt.collectors.agent import build_info
from clusterwatt.config.model import Config, Driver, Ledger, Training, node_name
from clusterwatt.config.model import Recorder as RecorderSettings
from clusterwatt.driver import holding, pci
from clusterwatt.driver.client import DriverClient
from clusterwatt.driver.frames import HostSettings
from clusterwatt.event_log import EventLog
from clusterwatt.expose.dcgm.page import DcgmPage, counters
from clusterwatt.expose.history import History
from clusterwatt.expose.render import Renderer
from clusterwatt.expose.senders import Senders
from clusterwatt.expose.server import Site
from clusterwatt.expose.training import Reception, ReportSocket
from clusterwatt.feeds import price
from clusterwatt.flight import bundle as flight_bundle
from clusterwatt.flight.recorder import Recorder
from clusterwatt.inventory import CATALOG
from clusterwatt.learnt import Learnt
from clusterwatt.ledger.faults import InUseError
from clusterwatt.ledger.keeper import Keeper
from clusterwatt.log import configure as configure_log
from clusterwatt.meters.node import power_feeds
from clusterwatt.nvml import bundle
from clusterwatt.nvml.bundle import BundleError
from clusterwatt.pipeline import Pipeline
from clusterwatt.readings.agent import ConfigReload
from clusterwatt.readings.base import Reading
from clusterwatt.readings.gpu_measured import DriverUp
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.report.receipt import Receipts
from clusterwatt.source import Account, Source
from clusterwatt.training.intake import Intake
from clusterwatt.training.reported import Mailbox
from clusterwatt.wanted import Known, replays_flight, wanted

log = logging.getLogger("clusterwatt")

ALIVE_WITHIN_TICKS = 10
STOP_WITHIN_S = 5.0
LEDGER_WITHIN_S = 2.0


class StartError(Exception):
    """The agent cannot start; the message is one line that names the remedy."""


class Agent:
    """All parts of one node's agent, wired. `apply` builds them, and builds anew what a reload changes."""

    def __init__(self, config: Config, clock: Clock, *, keeps_ledger: bool = True) -> None:
        self._clock = clock
        self._own_folder: tempfile.TemporaryDirectory[str] | None = None
        config = self._apart(config)
        self._accounts: dict[str, Account] = {}
        self._sources: dict[str, tuple[object, Source]] = {}
        self.driver: DriverClient | None = None
        self.config = config
        self._reloaded_well = True
        self._on_bus: int | None = None
        self._answers = keeps_ledger
        self._claimed = ""
        self._claim: int | None = None
        self._dcgm: DcgmPage | None = None
        # What simulated hardware is like is of no use to the next agent.
        memory = None if self._own_folder is not None else Path(config.ledger.path).parent / "learnt.json"
        self._learnt = Learnt(memory, clock, writes=keeps_ledger)
        self._known = Known(lambda: None if self.driver is None else self.driver.pid, self._learnt)
        check_root(config.node.root)
        check_replay(config)
        price.check(config.feeds.price)
        self._claim_flag(config)
        self.site = Site(
            renderer(config),
            History(),
            node_name=node_name(),
            ready=self.ready,
            alive=self.alive,
            dcgm=self._dcgm_page(config),
        )
        self.recorder = Recorder(config.recorder, node_name(), clock) if config.recorder.enabled else None
        keeper = self._keeper(config) if keeps_ledger else None
        if keeper is not None and config.simulate.label != "false":
            log.info(
                "simulated: `clusterwatt jobs --ledger %s` reads this agent's ledger", config.ledger.path
            )
        self._books = Bookkeeping(config, clock, boot_id(config.node.root), keeper, self._learnt)
        receive(self.site, config.training, self._known.mailbox, lambda: self._books.job_of, clock)
        self.pipeline = Pipeline(
            (),
            None,
            clock,
            self._publish,
            about_agent=self._about,
            books=self._books,
            learnt=self._learnt,
        )
        self.pipeline.on_event(EventLog(clock))
        if self.recorder is not None:
            self.pipeline.on_event(self.recorder.event)
        self._go_on_with(config, self._sources_for(config))

    def apply(self, config: Config) -> None:
        """Go on with another configuration from the next tick.

        Raises StartError or ConfigError and changes nothing.
        """
        config = self._apart(config)
        check_root(config.node.root)
        check_replay(config)
        price.check(config.feeds.price)
        dcgm = self._dcgm_page(config)
        for name in ("http", "ledger", "recorder"):
            if getattr(config, name) != getattr(self.config, name):
                log.warning("%s: changes take effect when the agent is restarted", name)
        if config.training.api != self.config.training.api:
            log.warning("training.api: changes take effect when the agent is restarted")
        rendered, sources = renderer(config), self._sources_for(config)
        self._claim_flag(config)
        # Nothing is refused from here on.
        configure_log(config.log.level, config.log.format)
        self.site.use(rendered, dcgm)
        self._books.use(config)
        self._go_on_with(config, sources)
        self.config = config

    def reload_failed(self) -> None:
        """Note that a new configuration was refused and the old one stands."""
        self._reloaded_well = False

    def reload_succeeded(self) -> None:
        """Note that the newest configuration is in force."""
        self._reloaded_well = True

    def alive(self) -> bool:
        """Whether ticks go on; asks nobody."""
        last_s = self.pipeline.last_tick_s
        return last_s is not None and self._clock.monotonic_s() - last_s < ALIVE_WITHIN_TICKS

    def ready(self) -> tuple[bool, str]:
        """Whether the node shows what it should: the expected GPUs where a number is configured."""
        expected = self.config.node.gpus_expected
        if not expected or self.driver is None:
            return True, "ok"
        (state,) = self.driver.parts()[DriverUp]
        return state.gpus_visible >= expected, f"{state.gpus_visible:.0f} of {expected} GPUs are visible"

    def stop(self) -> None:
        """Have the books written and let go of the driver."""
        self._learnt.close()
        self._books.stop(STOP_WITHIN_S)
        if self.driver is not None:
            self.driver.stop(STOP_WITHIN_S)
        if self._claim is not None:
            os.close(self._claim)
        if self._own_folder is not None:
            self._own_folder.cleanup()

    def release_driver(self) -> None:
        """Let go of the driver, as if the operator had set the flag; that it is set lets `resume` end it."""
        try:
            holding.ask(Path(self.config.driver.release_file))
        except OSError as error:
            log.error(
                "the release flag cannot be written, so the driver is let go of until restart: %s", error
            )
            if self.driver is not None:
                self.driver.release_until_restart()

    def freeze(self) -> None:
        """Have the flight recorder keep the last minutes."""
        if self.recorder is not None:
            self.recorder.freeze("by command")

    def _publish(self, snapshot: Snapshot) -> None:
        self._known.take(snapshot)
        self._learnt.keep()
        self.site.publish(snapshot)
        if self.recorder is not None:
            self.recorder.add(snapshot)

    def _about(self) -> Iterator[Reading]:
        yield build_info()
        yield ConfigReload(success=float(self._reloaded_well))
        yield from self.site.readings()
        node = self.config.node
        yield from power_feeds(node.power_feed_ratios, node.power_feed_capacity_watts)
        yield from price.effectiveness(self.config.meters.pue)

    def _apart(self, config: Config) -> Config:
        """The configuration; a simulated agent's with files that go with it, in place of the node's."""
        if config.simulate.label == "false":
            return config
        if self._own_folder is None:
            self._own_folder = tempfile.TemporaryDirectory(prefix="clusterwatt-")
        return apart(config, self._own_folder.name)

    def _claim_flag(self, config: Config) -> None:
        """Be the one agent that answers at the release flag. Raises StartError when another one does."""
        named = config.driver.release_file if self._answers and config.collectors.gpu.enabled else ""
        if named == self._claimed:
            return
        try:
            claim = holding.claim(Path(named)) if named else None
        except holding.ClaimedError as error:
            raise StartError(str(error)) from None
        if self._claim is not None:
            os.close(self._claim)
        self._claimed, self._claim = named, claim

    def _keeper(self, config: Config) -> Keeper:
        """The ledger. Raises StartError when another agent keeps the same."""
        settings = config.ledger
        path = Path(settings.path)
        folder = Path(settings.receipts_directory or path.parent / "receipts")
        receipts = Receipts(folder, path, node_name(), self._clock) if settings.receipts else None
        zone = price.time_zone(config.feeds.price)  # months begin where the tariff's do
        keeper = Keeper(settings, self._clock, zone=zone, on_ended=receipts)
        try:
            keeper.wait(LEDGER_WITHIN_S)
        except InUseError as error:
            raise StartError(str(error)) from None
        return keeper

    def _sources_for(self, config: Config) -> dict[str, tuple[object, Source]]:
        """Every source that the configuration wants: the one there is where it will do, else a new one."""
        sources: dict[str, tuple[object, Source]] = {}
        for name, settings, make, also in wanted(config, self._clock, self._known):
            identity = (config.node.root, settings, also)
            known = self._sources.get(name)
            if known is not None and known[0] == identity:
                sources[name] = known
                continue
            account = self._accounts.setdefault(name, Account(name, self._clock))
            sources[name] = (identity, Source(make(), settings.every_seconds, self._clock, account))
        return sources

    def _go_on_with(self, config: Config, sources: dict[str, tuple[object, Source]]) -> None:
        self._known.simulates = bool(config.simulate.profile)
        self._build_driver(config)
        for name, (_, source) in self._sources.items():
            if name not in sources or sources[name][1] is not source:
                source.close()
        self._sources = sources
        names = config.expose.node_exporter_names
        self.site.use_node_exporter_names(config.limits.max_series if names else None)
        self.pipeline.use([source for _, source in sources.values()], self.driver)

    def _build_driver(self, config: Config) -> None:
        """Have the driver client that the configuration wants; the one that there is where it will do."""
        wanted = config.collectors.gpu.enabled and not replays_flight(config)
        same_driver = self.driver is not None and config.simulate == self.config.simulate
        if self.driver is not None and not (wanted and same_driver):
            self.driver.retire()
            self.driver = None
        if not wanted:
            return
        settings = host_settings(config)
        self._gpus_on_bus(config)  # reads files, which a tick does not
        if self.driver is None:
            self.driver = DriverClient(
                settings,
                config.driver,
                self._clock,
                gpus_expected=lambda: self._gpus_expected(self.config),
                labels=lambda: self._known.node_labels,
                answers=self._answers,
            )
        else:
            self.driver.reconfigure(settings, config.driver)

    def _gpus_expected(self, config: Config) -> int:
        """How many GPUs should be there: as configured, else as the scheduler says, else by the bus."""
        return config.node.gpus_expected or self._known.gpus_by_scheduler or self._gpus_on_bus(config)

    def _gpus_on_bus(self, config: Config) -> int:
        """The most GPUs that sat on the bus, driven or not; 0 where that is not asked."""
        if not config.node.gpus_expected_from_bus or config.simulate.label != "false":
            return 0
        if self._on_bus is None:  # asked once: one that is removed afterwards is missing
            bus, known = pci.gpus(config.node.root), int(self._learnt.of("gpus").get("on_bus", 0.0))
            # What no driver has may still be given to another, so it is not kept for later agents.
            if 0 < bus.driven >= known:
                self._learnt.most("gpus", "on_bus", bus.driven)
            self._on_bus = max(bus.driven + bus.unbound, known - bus.foreign)
        return self._on_bus

    def _dcgm_page(self, config: Config) -> DcgmPage | None:
        """The page of dcgm-exporter's names, the one that there is when nothing of it changes."""
        settings = config.expose.dcgm
        if not settings.enabled:
            self._dcgm = None
            return None
        wanted = counters(settings)
        if self._dcgm is None or self._dcgm.identity != (settings, wanted):
            for note in wanted.notes:
                log.warning("%s", note)
            self._dcgm = DcgmPage(settings, wanted, node_name())
        return self._dcgm


def apart(config: Config, folder: str) -> Config:
    """The configuration with files in a folder of its own, where it names none: nothing of the node's."""
    replace, ledger, recorder, driver = msgspec.structs.replace, config.ledger, config.recorder, config.driver
    if ledger.path == Ledger().path:
        ledger = replace(ledger, path=f"{folder}/ledger.db")
    if recorder.directory == RecorderSettings().directory:
        recorder = replace(recorder, directory=f"{folder}/flight")
    if driver.release_file == Driver().release_file:
        driver = replace(driver, release_file=f"{folder}/driver-release")
    return replace(config, ledger=ledger, recorder=recorder, driver=driver)


def receive(
    site: Site, settings: Training, mailbox: Mailbox, job_of: Callable[[], Mapping[str, str]], clock: Clock
) -> None:
    """Have a site take the reports of training processes, where the configuration wants them."""
    api = settings.api
    if not settings.enabled or not (api.enabled or api.socket):
        return
    reception = Reception(Intake(mailbox, clock).take, Senders(job_of), clock)
    at_socket = ReportSocket(api.socket, int(api.socket_mode, 8), reception) if api.socket else None
    site.use_reports(reception if api.enabled else None, at_socket)


def host_settings(config: Config) -> HostSettings:
    """What the driver host needs to know of the configuration."""
    gpu, driver = config.collectors.gpu, config.driver
    return HostSettings(
        every_seconds=gpu.every_seconds,
        slow_seconds=gpu.slow_seconds,
        gpm=gpu.gpm,
        deadline_seconds=driver.deadline_seconds,
        retry_seconds=driver.retry_seconds,
        simulate=config.simulate,
        release_file=driver.release_file,
        log_level=config.log.level,
        log_format=config.log.format,
        root=config.node.root if config.simulate.label == "false" else "",
        library_roots=driver.library_roots,
    )


def renderer(config: Config) -> Renderer:
    """The renderer for what the configuration lets out."""
    limits = config.limits
    return Renderer(CATALOG, limits.profile, limits.families, limits.max_series)


def boot_id(root: str) -> str:
    """The kernel's name for this boot (random(4)); empty where it is not told."""
    try:
        return Path(root, "proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def check_root(root: str) -> None:
    """Refuse a root that holds no proc file system. Raises StartError."""
    try:
        with Path(root, "proc/stat").open("rb") as file:
            file.read(1)
    except OSError as error:
        raise StartError(
            f"node.root {root}: {root.rstrip('/')}/proc/stat cannot be read ({error.strerror}); "
            "mount the host's root there, read-only, or leave node.root at /"
        ) from None


def check_replay(config: Config) -> None:
    """Refuse a recorded driver that cannot be played. Raises StartError."""
    gpu, path = config.collectors.gpu, config.simulate.replay_file
    if not path:
        return
    if replays_flight(config):
        try:
            flight_bundle.read(Path(path))
        except flight_bundle.BundleError as error:
            raise StartError(str(error)) from None
        return
    try:
        recorded = bundle.read(Path(path)).manifest
    except BundleError as error:
        raise StartError(str(error)) from None
    if recorded.every_seconds != gpu.every_seconds:
        log.warning(
            "recorded each %g s, played each %g s: collectors.gpu.every_seconds makes the two the same",
            recorded.every_seconds,
            gpu.every_seconds,
        )
