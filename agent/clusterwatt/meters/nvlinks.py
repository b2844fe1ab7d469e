"""How many NVLinks a GPU should have up: no fewer than it ever had, whichever driver host or agent saw them.

On boards for bridges the driver host knows only what it has seen itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from clusterwatt.learnt import Learnt
from clusterwatt.readings.gpu_links import GpuNvlinks

KIND = "nvlinks"


def remembered(links: Iterable[GpuNvlinks], learnt: Learnt) -> Iterator[GpuNvlinks]:
    """The counts with what earlier ones knew. Links that are all down are not seen as they should be."""
    known = learnt.of(KIND)
    for each in links:
        expected = max(each.expected, known.get(each.uuid, 0.0))
        if each.expected == expected > 0:
            learnt.most(KIND, each.uuid, expected)
        yield each if expected == each.expected else msgspec.structs.replace(each, expected=expected)
