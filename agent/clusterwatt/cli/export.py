"""`clusterwatt export`: the alert rules with the changes of a site; boards are in a file of their own."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from clusterwatt.cli import export_boards
from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError, Once


def add(commands: Commands) -> None:
    """Add the command."""
    export = commands.add_parser(
        "export", help="write rules for Prometheus or boards for Grafana", allow_abbrev=False
    )
    kinds = export.add_subparsers(dest="what", metavar="WHAT", required=True)
    rules = kinds.add_parser(
        "rules",
        help="alert and recording rules, with the changes of an overrides file",
        description="Writes the rules into DIR, one file for each group; rules that are off into "
        "DIR/off-by-default, which is not to be loaded. promtool checks them first where it is on PATH.",
        allow_abbrev=False,
    )
    rules.add_argument("folder", metavar="DIR", nargs="?", help="where the files go")
    rules.add_argument("--overrides", metavar="FILE", action=Once, help="what the site changes")
    rules.add_argument(
        "--format",
        choices=("prometheus", "prometheusrule"),
        default="prometheus",
        help="files for rule_files, or PrometheusRule objects for the operator (default: prometheus)",
    )
    rules.add_argument(
        "--list", action="store_true", help="print every value that can be changed, default and effective"
    )
    rules.add_argument("--json", action="store_true", help="print --list as JSON")
    rules.add_argument("--promtool", metavar="PROGRAM", help="promtool, where it is not on PATH")
    rules.set_defaults(act=_rules)
    export_boards.add(kinds)


def _rules(arguments: argparse.Namespace) -> int:
    from clusterwatt.config.problems import ConfigError
    from clusterwatt.inventory import CATALOG
    from clusterwatt.rules import export, overrides, promtool, render, shipped
    from clusterwatt.rules.doubts import doubts

    if (arguments.folder is None) != arguments.list:
        raise EndError("clusterwatt export rules: name the DIR to write, or --list", WRONG_INPUT)
    files = shipped.files()
    try:
        changes = overrides.Overrides()
        if arguments.overrides:
            families = {metric.full_name: metric.labels for metric in CATALOG}
            changes = overrides.load(Path(arguments.overrides), files, families)
        rendered = render.render(files, changes, kubernetes=arguments.format == "prometheusrule")
        if arguments.list:
            values = render.effective(files, changes)
            sys.stdout.write(export.as_json(values) if arguments.json else export.table(values))
            return 0
        program = promtool.find(arguments.promtool)
        if program is not None:
            export.check(rendered, program)
        paths = export.write(rendered, Path(arguments.folder))
    except ConfigError as error:
        raise EndError(str(error), WRONG_INPUT) from None
    except render.RenderError as error:
        raise EndError(f"{arguments.overrides}: {error}", WRONG_INPUT) from None
    except (export.ExportError, promtool.PromtoolError) as error:
        raise EndError(f"clusterwatt: {error}", FAILED) from None
    except FileExistsError as error:
        raise EndError(f"clusterwatt: {error.filename}: expected a folder, found a file", FAILED) from None
    except OSError as error:
        raise EndError(
            f"clusterwatt: {error.filename or arguments.folder}: {error.strerror}", FAILED
        ) from None
    for path in paths:
        sys.stdout.write(f"{path}\n")
    for doubt in doubts(files, changes):
        sys.stderr.write(f"clusterwatt: {arguments.overrides}: warning: {doubt}\n")
    if program is None:
        sys.stderr.write("clusterwatt: promtool is not on PATH: the rules were not checked by it\n")
    return 0
