"""Jobs that a scenario brings along: on GPUs that it names, doing one thing from a moment that it names.

What the usual jobs of a cluster do depends on the hour; these do not, so a fault of theirs shows at once.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping

import msgspec

from clusterwatt.fleet.notation import nodes_of, seconds_of
from clusterwatt.simulate import acts, plans
from clusterwatt.simulate.acts import Act
from clusterwatt.simulate.cluster import Lane, scheduler_of
from clusterwatt.simulate.kinds import Kind

DOES: Mapping[str, Act] = {
    "idle": acts.HELD,
    "train": acts.TRAIN,
    "starve": acts.STARVED,
    "spin": acts.SPINNING,
    "serve": acts.serving(0.5),
}
CONTROLLERS: Mapping[str, str] = {"batch": "Job", "interactive": "Notebook", "service": "Deployment"}
FIRST_NUMBER = 900  # of their lanes; those of 49 blocks count up to here
TOKENS, PARAMETERS = 8_192.0, 7e9  # of a batch job that makes steps


class PlacedJob(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A job, as it stands in the file. `gpus`: on each of its nodes; all by default.

    `at` counts from the start of the fleet, `ran` says for how long it has run by then, without `lasts` it
    stays.
    """

    name: str
    node: str
    gpus: tuple[int, ...] | None = None
    does: str = "train"
    kind: str = "batch"
    user: str = "demo"
    account: str = "research"
    at: str = ""
    ran: str = ""
    lasts: str = ""

    def boards(self, nodes: int, gpus: int) -> list[tuple[int, int]]:
        """Node and board of all that it holds, in a cluster of so many nodes with so many GPUs."""
        return [(node, board) for node in nodes_of(self.node, nodes) for board in self.numbers(gpus)]

    def numbers(self, gpus: int) -> tuple[int, ...]:
        """The boards of each node, of so many."""
        return tuple(range(gpus)) if self.gpus is None else self.gpus


def lanes(jobs: Iterable[PlacedJob], started_s: float, nodes: int, gpus: int, seed: int) -> Iterator[Lane]:
    """The lanes of these jobs, in a cluster that is started at this Unix time."""
    for number, job in enumerate(jobs, FIRST_NUMBER):
        at_s, ran_s = seconds_of(job.at), seconds_of(job.ran)
        end_s = at_s + ran_s + seconds_of(job.lasts) if job.lasts else math.inf
        here = nodes_of(job.node, nodes)
        places = [(node, job.numbers(gpus)) for node in here]
        kind = _kind(job, scheduler_of(here[0]), at_s, end_s)
        yield Lane(kind, number, seed, places, begins_s=math.floor(started_s - ran_s))


def _kind(job: PlacedJob, scheduler: str, start_s: float, end_s: float) -> Kind:
    trains = job.kind == "batch"
    return Kind(
        name=job.name,
        scheduler=scheduler,
        kind=job.kind,
        user=job.user,
        account=job.account,
        weeks=lambda chance: plans.once(DOES[job.does], start_s, end_s),
        tokens=TOKENS if trains else 0.0,
        parameters=PARAMETERS if trains else 0.0,
        controller=CONTROLLERS[job.kind] if scheduler == "kubernetes" else "",
    )
