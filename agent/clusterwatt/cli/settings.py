"""The configuration of a command: its options, its file, and what is wrong with it."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from clusterwatt.cli.ending import FAILED, WRONG_INPUT, EndError, Once

if TYPE_CHECKING:
    from clusterwatt.config.load import Loaded
    from clusterwatt.config.model import Config
    from clusterwatt.config.problems import ConfigError, Problem

DEFAULT_FILE = "/etc/clusterwatt/clusterwatt.yaml"


def add_file(command: argparse.ArgumentParser) -> None:
    """Add the options by which a command finds its configuration."""
    command.add_argument(
        "--config",
        metavar="FILE",
        action=Once,
        help=f"configuration file (default: $CLUSTERWATT_CONFIG, else {DEFAULT_FILE} where it exists)",
    )
    command.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        help="one setting, as collectors.gpu.every_seconds=5; may be given again",
    )


def add(command: argparse.ArgumentParser) -> None:
    """Add these, and options for settings that are often changed."""
    add_file(command)
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


def loaded(
    arguments: argparse.Namespace, find: Callable[[argparse.Namespace], Loaded] | None = None
) -> Loaded:
    """The configuration, as `find` finds it, else `load`; what is wrong with it ends the command."""
    from clusterwatt.config.problems import ConfigError

    try:
        return (find or load)(arguments)
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None


def checked(arguments: argparse.Namespace) -> Loaded:
    """The configuration, when the files that it names are right too.

    Raises ConfigError with all that is wrong with any of them.
    """
    from clusterwatt.config.load import WrongSettingsError
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.expose import web_file
    from clusterwatt.expose.dcgm.page import counters
    from clusterwatt.feeds import price

    problems: list[Problem] = []
    try:
        found = load(arguments)
    except WrongSettingsError as error:
        problems += error.problems
        found = error.loaded
    config = found.config
    looks: tuple[Callable[[], object], ...] = (
        lambda: price.check(config.feeds.price),
        lambda: web_file.check(config.http.web_config_file),
        lambda: counters(config.expose.dcgm) if config.expose.dcgm.enabled else None,
    )
    for look in looks:
        try:
            look()
        except ConfigError as error:
            problems += with_setting(error, found)
    if problems:
        raise ConfigError(problems)
    return found


def load(arguments: argparse.Namespace) -> Loaded:
    """The configuration. Raises ConfigError."""
    from clusterwatt.config import load as configuration
    from clusterwatt.inventory import CATALOG

    given = {
        "--root": ("node.root", getattr(arguments, "root", None)),
        "--listen": ("http.listen", getattr(arguments, "listen", None)),
        "--simulate": ("simulate.profile", getattr(arguments, "simulate", None)),
        "--replay": ("simulate.replay_file", getattr(arguments, "replay", None)),
        "--log-level": ("log.level", getattr(arguments, "log_level", None)),
    }
    return configuration.load(
        file(arguments),
        os.environ,
        arguments.set,
        flags={flag: (path, value) for flag, (path, value) in given.items() if value is not None},
        families=[metric.name for metric in CATALOG],
    )


def file(arguments: argparse.Namespace) -> Path | None:
    """The file to load; None when none is named and the default one does not exist."""
    named = arguments.config or os.environ.get("CLUSTERWATT_CONFIG")
    if named:
        return Path(named)
    try:
        os.stat(DEFAULT_FILE)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:  # it may be there: loading it says why it cannot be read, better than to go on without
        pass
    return Path(DEFAULT_FILE)


def with_setting(error: ConfigError, found: Loaded) -> Iterator[Problem]:
    """What is wrong with the files that are named; a file that cannot be read is told with its setting."""
    from clusterwatt.config.problems import Problem

    config, sources = found.config, found.sources
    named = {"feeds.price.book": config.feeds.price.book, "http.web_config_file": config.http.web_config_file}
    settings = {str(Path(file)): setting for setting, file in named.items() if file and setting in sources}
    for problem in error.problems:
        setting = settings.get(problem.where)  # None where a line of the file is told
        yield problem if setting is None else Problem(sources[setting], setting, str(problem))


def start_agent(
    arguments: argparse.Namespace,
    start: Callable[[Config], int],
    find: Callable[[argparse.Namespace], Loaded] | None = None,
) -> int:
    """Find the configuration, set up the log, start; what keeps the agent from starting is one line."""
    from clusterwatt import log
    from clusterwatt.app import StartError
    from clusterwatt.config.problems import ConfigError

    found = loaded(arguments, find)
    config = found.config
    log.configure(config.log.level, config.log.format)
    try:
        return start(config)
    except ConfigError as error:  # of a file that the configuration names, and that has changed meanwhile
        raise EndError("\n".join(map(str, with_setting(error, found))), WRONG_INPUT) from None
    except StartError as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
