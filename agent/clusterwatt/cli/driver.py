"""`clusterwatt driver`: have the running agent let go of the driver, and take it up again."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from clusterwatt.cli import settings
from clusterwatt.cli.ending import FAILED, WRONG_INPUT, Commands, EndError, seconds


def add(commands: Commands) -> None:
    """Add the command."""
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
        type=_uuid,
        help="this GPU only: the agent does not read it. The driver stays in use all the same, because NVML "
        "cannot let go of a single GPU: to reset one, release without --uuid",
    )
    driver.add_argument(
        "--timeout",
        metavar="N",
        type=seconds,
        default=30.0,
        help="how long to wait until it has taken effect (default: 30 seconds)",
    )
    settings.add(driver)
    driver.set_defaults(act=_driver)


def _uuid(text: str) -> str:
    # An empty one, of a variable that is not set, would ask for the whole driver.
    if not re.fullmatch(r"GPU-[0-9A-Za-z-]{1,80}", text):
        raise argparse.ArgumentTypeError("expected the UUID of a GPU, as `nvidia-smi -L` prints it")
    return text


def _driver(arguments: argparse.Namespace) -> int:
    from clusterwatt.clock import SystemClock
    from clusterwatt.driver import release_command

    configured = settings.loaded(arguments).config.driver.release_file
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
