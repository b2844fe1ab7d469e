"""`clusterwatt check-config`: the effective configuration, or everything wrong with it."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from clusterwatt.cli import settings
from clusterwatt.cli.ending import WRONG_INPUT, Commands, EndError

if TYPE_CHECKING:
    from clusterwatt.config.model import Config
    from clusterwatt.config.problems import ConfigError


def add(commands: Commands) -> None:
    """Add the command."""
    check = commands.add_parser(
        "check-config",
        help="print the effective configuration, or everything wrong with it",
        allow_abbrev=False,
    )
    check.add_argument(
        "--print-defaults", action="store_true", help="print a commented file of all settings instead"
    )
    settings.add(check)
    check.set_defaults(act=_check_config)


def _check_config(arguments: argparse.Namespace) -> int:
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.config.write import reference, to_yaml
    from clusterwatt.expose import web_file
    from clusterwatt.expose.dcgm.page import counters
    from clusterwatt.feeds import price

    if arguments.print_defaults:
        sys.stdout.write(reference())
        return 0
    wrong: list[str] = []
    sources: Mapping[str, str] = {}
    try:
        loaded = settings.load(arguments)
        config, sources = loaded.config, loaded.sources
    except ConfigError as error:
        wrong.append(str(error))
        config = _with_files_of(error)
    notes: list[str] = []
    dcgm = config.expose.dcgm
    looks: tuple[Callable[[], None], ...] = (
        lambda: price.check(config.feeds.price),
        lambda: web_file.check(config.http.web_config_file),
        lambda: notes.extend(counters(dcgm).notes if dcgm.enabled else ()),
    )
    for look in looks:
        try:
            look()
        except ConfigError as error:
            wrong.append(settings.with_setting(error, sources, config))
    if wrong:
        raise EndError("\n".join(wrong), WRONG_INPUT)
    for note in notes:
        sys.stderr.write(f"clusterwatt: {note}\n")
    lines = [f"# configuration file: {settings.file(arguments) or 'none'}"]
    lines += [f"# {path}: {source}" for path, source in sources.items()]
    sys.stdout.write("\n".join([*lines, to_yaml(loaded.config)]))
    return 0


def _with_files_of(error: ConfigError) -> Config:
    """The defaults, with the files that a configuration names in spite of its mistakes."""
    from msgspec.structs import replace

    from clusterwatt.config.model import Config

    config = Config()
    book, web = error.right.get("feeds.price.book"), error.right.get("http.web_config_file")
    if isinstance(book, str):
        config = replace(config, feeds=replace(config.feeds, price=replace(config.feeds.price, book=book)))
    if isinstance(web, str):
        config = replace(config, http=replace(config.http, web_config_file=web))
    return config
