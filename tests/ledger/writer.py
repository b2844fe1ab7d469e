"""A ledger's writer as a process of its own, to be killed: says a number after each commit that returned.

    python -m tests.ledger.writer FILE [LIMIT_BYTES]

With a limit the file may grow no further (setrlimit(2), RLIMIT_FSIZE) until a line comes on standard input.
"""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import msgspec

from clusterwatt.clock import SystemClock
from clusterwatt.ledger import gathering
from clusterwatt.ledger.faults import LedgerError
from clusterwatt.ledger.state import Payload
from clusterwatt.ledger.store import Store
from tests.clocks import FakeClock
from tests.ledger.batches import amounts, batch, gpu_entry, host_entry

JOBS = 16
JOULES = JOBS * (700.0 + 30.0) + 100.0  # of each commit


def payload(clock: FakeClock) -> Payload:
    """The same joules every time, in many rows, in an hour of its own now and then."""
    made = Payload()
    booked = {gpu_entry(f"slurm/{number}", device=f"GPU-{number}"): amounts() for number in range(JOBS)}
    booked |= {host_entry(f"slurm/{number}"): amounts(0.0, 30.0) for number in range(JOBS)}
    booked[gpu_entry("")] = amounts(1.0, 100.0)
    gathering.add(made, batch(clock, booked, counter_joules=0.0))
    return made


def month_of(hour_s: int) -> str:
    return "2023-11"


def main() -> None:
    clock = FakeClock()
    store = Store(Path(sys.argv[1]), SystemClock())
    state, _ = store.open("2023-11")
    if len(sys.argv) > 2:
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]), resource.RLIM_INFINITY))
    waiting = Payload()
    number = state.node.commits
    while True:
        clock.advance(97.0)
        waiting = gathering.joined(waiting, payload(clock))
        number += 1
        try:
            state = store.commit(state, waiting, (), month_of)
        except LedgerError as error:
            print(error.state, flush=True)
            sys.stdin.readline()
            resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            continue
        waiting = Payload()
        # Jobs are looked up anew now and then, as after they were away.
        if number % 7 == 0:
            state = msgspec.structs.replace(state, jobs={"": state.jobs[""]})
        print(number, flush=True)


if __name__ == "__main__":
    main()
