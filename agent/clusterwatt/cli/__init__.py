"""The command line. Each command imports what it needs itself, so that `--help` does not wait for the agent.

Exit status: 0 well, 1 could not start or failed, 2 the command line or the configuration is wrong, 130 ended
by Ctrl-C. What a user can put right is said in one line for each thing, without a traceback.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
from collections.abc import Sequence

from clusterwatt import __version__
from clusterwatt.cli import (
    capture,
    check_config,
    discovery,
    driver,
    export,
    flight,
    ledger,
    maintenance,
    metrics,
    report,
    rules,
    run,
    simulate,
)
from clusterwatt.cli.ending import FAILED, INTERRUPTED, EndError, Parser

CANNOT_WRITE = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
# What asks a running agent for something, and would end one that is only starting.
REQUESTS = frozenset({signal.SIGHUP, signal.SIGUSR1, signal.SIGUSR2})
GROUPS = (
    run,
    check_config,
    capture,
    driver,
    maintenance,
    report,
    flight,
    ledger,
    metrics,
    export,
    discovery,
    rules,
    simulate,
)


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
        status: int = arguments.act(arguments)
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
    for group in GROUPS:
        group.add(commands)
    return top
