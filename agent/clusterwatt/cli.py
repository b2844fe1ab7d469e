"""The command line. Each command imports what it needs itself, so that `--help` does not wait for the agent.

Exit status: 0 well, 1 could not start or failed, 2 the command line or the configuration is wrong, 130 ended
by Ctrl-C. What a user can put right is said in one line for each thing, without a traceback.
"""

from __future__ import annotations

import argparse
import contextlib
import errno
import os
import signal
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from clusterwatt import __version__

if TYPE_CHECKING:
    from clusterwatt.config.load import Loaded
    from clusterwatt.config.model import Config

DEFAULT_CONFIG = "/etc/clusterwatt/clusterwatt.yaml"
FAILED, WRONG_INPUT, INTERRUPTED = 1, 2, 130
CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# What asks a running agent for something, and would end one that is only starting.
REQUESTS = frozenset({signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})


class EndError(Exception):
    """The command ends here: what to say on standard error, and the exit status."""

    def __init__(self, text: str, status: int) -> None:
        super().__init__(text)
        self.status = status


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and leaves the end of the process to `main`."""

    def error(self, message: str) -> NoReturn:
        """Raise EndError."""
        raise EndError(f"{self.prog}: {message}; see {self.prog} --help", WRONG_INPUT)


class Once(argparse.Action):
    """An option that two values make no sense for: the second is refused, not silently preferred."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Take the value."""
        if getattr(namespace, self.dest) is not None:
            raise argparse.ArgumentError(self, "given twice")
        setattr(namespace, self.dest, values)


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit status."""
    if list(sys.argv[1:] if argv is None else argv)[:1] == ["run"]:
        signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)  # they wait until the agent listens for them
    _open_closed_streams()
    try:
        try:
            arguments = parser().parse_args(argv)
        finally:
            sys.stdout.flush()  # of --help, which ends here
        status = COMMANDS[arguments.command](arguments)
        sys.stdout.flush()
    except EndError as error:
        _say(str(error))
        return error.status
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:  # the reader has gone (`| head`)
        _drop_output()
        return FAILED
    except OSError as error:
        if error.errno not in CANNOT_WRITE or error.filename is not None:
            raise
        _drop_output()
        _say(f"clusterwatt: standard output cannot be written: {error.strerror}")
        return FAILED
    return status


def _open_closed_streams() -> None:
    """Put /dev/null where a standard stream is closed: the next socket would get its number."""
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # gets the lowest free number, which is this one
            os.set_inheritable(descriptor, True)
    # Python has None in place of a stream that was closed.
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


def _say(text: str) -> None:
    """Say something on standard error, if it can be said."""
    with contextlib.suppress(OSError):
        sys.stderr.write(f"{text}\n")


def _drop_output() -> None:
    """Have what is not written yet go nowhere: Python would complain once more when it flushes at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def parser() -> Parser:
    """The commands and their options."""
    top = Parser(
        prog="clusterwatt",
        description="Watches the GPUs, network, disks and power of a training node.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"clusterwatt {__version__}")
    commands = top.add_subparsers(dest="command", metavar="COMMAND", required=True)
    run = commands.add_parser("run", help="serve metrics until stopped", allow_abbrev=False)
    once = commands.add_parser("once", help="print one page of metrics and end", allow_abbrev=False)
    check = commands.add_parser(
        "check-config",
        help="print the effective configuration, or everything wrong with it",
        allow_abbrev=False,
    )
    check.add_argument(
        "--print-defaults", action="store_true", help="print a commented file of all settings instead"
    )
    capture = commands.add_parser(
        "capture",
        help="record what the NVIDIA driver answers, to be played by --replay",
        description="Records every driver call (what was asked, what came back, how long it took) as the "
        "agent makes them, and once what it reads rarely or never. UUIDs, serial numbers, GUIDs, process "
        "ids and names of processes and hosts are replaced by pseudonyms; PCI addresses, models, versions "
        "and measurements stay. It runs beside an agent and changes nothing on a GPU.",
        allow_abbrev=False,
    )
    capture.add_argument("file", metavar="FILE", help="the bundle to write; replaced when it exists")
    capture.add_argument("--seconds", metavar="N", type=_seconds, default=30.0, help="how long (default: 30)")
    capture.add_argument(
        "--plain", action="store_true", help="keep UUIDs and all other identities as they are"
    )
    driver = commands.add_parser(
        "driver",
        help="have the running agent let go of the NVIDIA driver, and take it up again",
        description="release: the agent ends the process that has the driver open, so that the kernel module "
        "can be unloaded or a GPU reset; network, disks and host are read on. resume: it starts a fresh "
        "process, which loads the library that is installed then. status: what is asked for and what the "
        "agent has done. The request is a file (driver.release_file); it stands until resume, also over a "
        "restart of the agent. SIGUSR1 to the agent is release. Single families are switched off at run time "
        "by limits.families and SIGHUP.",
        allow_abbrev=False,
    )
    driver.add_argument("action", choices=("release", "resume", "status"))
    driver.add_argument(
        "--uuid",
        metavar="UUID",
        help="this GPU only: the agent does not read it. The driver stays in use all the same, because NVML "
        "cannot let go of a single GPU: to reset one, release without --uuid",
    )
    driver.add_argument(
        "--timeout",
        metavar="N",
        type=_seconds,
        default=30.0,
        help="how long to wait until it has taken effect (default: 30 seconds)",
    )
    for command in (run, once, check, capture, driver):
        _add_settings(command)
    for command in (run, once):
        command.add_argument(
            "--replay",
            metavar="FILE",
            help="simulate.replay_file, a bundle of `clusterwatt capture` in place of the driver",
        )
    flight = commands.add_parser("flight", help="show a bundle of the flight recorder", allow_abbrev=False)
    flight.add_argument("file", metavar="FILE", help="a file *.flight.zip out of recorder.directory")
    flight.add_argument("--gpu", metavar="INDEX", help="this GPU only (table)")
    flight.add_argument("--format", choices=("table", "csv"), default="table")
    metrics = commands.add_parser("metrics", help="list every metric", allow_abbrev=False)
    metrics.add_argument("--format", choices=("table", "markdown", "json"), default="table")
    return top


def _add_settings(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--config",
        metavar="FILE",
        action=Once,
        help=f"configuration file (default: $CLUSTERWATT_CONFIG, else {DEFAULT_CONFIG} where it exists)",
    )
    command.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="one setting, as collectors.gpu.every_seconds=5; may be given again",
    )
    command.add_argument("--listen", metavar="ADDR", help="http.listen, as 127.0.0.1:10777 or :10777")
    command.add_argument("--root", metavar="DIR", help="node.root, where the host's file system is mounted")
    command.add_argument(
        "--simulate",
        metavar="PROFILE",
        nargs="?",
        const="h100",
        help="simulate.profile, simulated GPUs in place of the driver (default: h100)",
    )
    command.add_argument("--log-level", metavar="LEVEL", help="log.level: debug, info, warning or error")


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3_600:
        raise argparse.ArgumentTypeError("expected more than 0 and at most 3600 seconds")
    return seconds


def _run(arguments: argparse.Namespace) -> int:
    from clusterwatt import app

    return _agent(arguments, lambda config: app.run(config, lambda: _load(arguments).config))


def _once(arguments: argparse.Namespace) -> int:
    from clusterwatt import app

    return _agent(arguments, app.once)


def _capture(arguments: argparse.Namespace) -> int:
    from clusterwatt import app

    path = Path(arguments.file)
    return _agent(
        arguments,
        lambda config: app.capture(config, path, arguments.seconds, pseudonyms=not arguments.plain),
    )


def _driver(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.driver import release_command

    configured = _loaded(arguments).config.driver.release_file
    if not configured:
        raise EndError("clusterwatt: driver.release_file is empty: the agent watches no file", WRONG_INPUT)
    path = Path(configured)
    if arguments.action == "status":
        sys.stdout.write("\n".join(release_command.status(path)) + "\n")
        return 0
    act = release_command.release if arguments.action == "release" else release_command.resume
    try:
        said = act(path, arguments.uuid, arguments.timeout, SystemClock())
    except release_command.RefusedError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
    sys.stdout.write(f"{said}\n")
    return 0


def _agent(arguments: argparse.Namespace, start: Callable[[Config], int]) -> int:
    """Load the configuration, set up the log, start; what keeps the agent from starting is one line."""
    import logging

    from clusterwatt import log
    from clusterwatt.app import StartError
    from clusterwatt.config.checks import not_in_use
    from clusterwatt.config.problems import ConfigError

    config = _loaded(arguments).config
    log.configure(config.log.level, config.log.format)
    for note in not_in_use(config):
        logging.getLogger("clusterwatt").warning(note)
    try:
        return start(config)
    except ConfigError as error:  # of a file that the configuration names
        raise EndError(str(error), WRONG_INPUT) from None
    except StartError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None


def _check_config(arguments: argparse.Namespace) -> int:
    from clusterwatt.config.checks import not_in_use
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.config.write import reference, to_yaml
    from clusterwatt.expose.dcgm.page import counters

    if arguments.print_defaults:
        sys.stdout.write(reference())
        return 0
    loaded = _loaded(arguments)
    dcgm = loaded.config.expose.dcgm
    try:
        notes = [*not_in_use(loaded.config), *(counters(dcgm).notes if dcgm.enabled else ())]
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None
    for note in notes:
        sys.stderr.write(f"clusterwatt: {note}\n")
    lines = [f"# configuration file: {_config_file(arguments) or 'none'}"]
    lines += [f"# {path}: {source}" for path, source in loaded.sources.items()]
    sys.stdout.write("\n".join([*lines, to_yaml(loaded.config)]))
    return 0


def _metrics(arguments: argparse.Namespace) -> int:
    from clusterwatt import metrics_page
    from clusterwatt.inventory import CATALOG

    formats = {
        "table": metrics_page.table,
        "markdown": metrics_page.markdown,
        "json": metrics_page.as_json,
    }
    sys.stdout.write(formats[arguments.format](CATALOG))
    return 0


def _flight(arguments: argparse.Namespace) -> int:
    from clusterwatt.flight import bundle, table

    try:
        manifest, moments = bundle.read(Path(arguments.file))
    except bundle.BundleError as error:
        raise EndError(f"clusterwatt: {error}", WRONG_INPUT) from None
    if arguments.format == "csv":
        lines = table.as_csv(moments)
    else:
        sys.stdout.write(f"{manifest.node}: {manifest.reason}; times are UTC\n")
        lines = table.table(moments, arguments.gpu)
    for line in lines:
        sys.stdout.write(line + "\n")
    return 0


def _loaded(arguments: argparse.Namespace) -> Loaded:
    """The configuration; what is wrong with it ends the command."""
    from clusterwatt.config.problems import ConfigError

    try:
        return _load(arguments)
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None


def _load(arguments: argparse.Namespace) -> Loaded:
    """The configuration. Raises ConfigError."""
    from clusterwatt.config.load import load
    from clusterwatt.inventory import CATALOG

    given = {
        "--root": ("node.root", arguments.root),
        "--listen": ("http.listen", arguments.listen),
        "--simulate": ("simulate.profile", arguments.simulate),
        "--replay": ("simulate.replay_file", getattr(arguments, "replay", None)),
        "--log-level": ("log.level", arguments.log_level),
    }
    return load(
        _config_file(arguments),
        os.environ,
        arguments.set,
        flags={flag: (path, value) for flag, (path, value) in given.items() if value is not None},
        families=[metric.name for metric in CATALOG],
    )


def _config_file(arguments: argparse.Namespace) -> Path | None:
    """The file to load; None when none is named and the default one does not exist."""
    named = arguments.config or os.environ.get("CLUSTERWATT_CONFIG")
    if named:
        return Path(named)
    try:
        os.stat(DEFAULT_CONFIG)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # it may be there: loading it says why it cannot be read, better than to go on without
        pass
    return Path(DEFAULT_CONFIG)


COMMANDS = {
    "run": _run,
    "once": _once,
    "capture": _capture,
    "check-config": _check_config,
    "driver": _driver,
    "flight": _flight,
    "metrics": _metrics,
}
