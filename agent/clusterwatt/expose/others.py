"""Families of other tools as OpenMetrics can hold them.

The text format allows what OpenMetrics does not: counters below zero, and a gauge `jobs_created` beside the
counter `jobs_total`, which is what prometheus_client writes into text files. A strict reader would refuse the
whole page, so such families go out there with the same series and the type `unknown`.
https://prometheus.io/docs/specs/om/open_metrics_spec/
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Iterator

from clusterwatt.collectors.exposition import Labels, name_and_labels
from clusterwatt.readings.agent import TextFamily

SUFFIXES = {
    "counter": ("_total", "_created"),
    "histogram": ("_bucket", "_count", "_sum", "_created"),
    "summary": ("_count", "_sum", "_created"),
}


def held(families: Iterable[TextFamily]) -> Iterable[TextFamily]:
    """The same samples, with no type that a strict reader of OpenMetrics would refuse."""
    families = tuple(families)
    names = Counter(name for family in families for name in _names(family))
    page: dict[str, TextFamily] = {}
    for family in families:
        alone = all(names[name] == 1 for name in _names(family))
        typed = family.kind not in SUFFIXES or (alone and _is_sound(family))
        for each in (family,) if typed else _unknown(family):
            other = page.get(each.name)
            page[each.name] = each if other is None else _joined(other, each)
    return page.values()


def _names(family: TextFamily) -> set[str]:
    """The names that a family takes: no other may have one of them."""
    bare = family.name.removesuffix("_total") if family.kind == "counter" else family.name
    return {bare, family.name, *(bare + suffix for suffix in SUFFIXES.get(family.kind, ()))}


def _joined(first: TextFamily, second: TextFamily) -> TextFamily:
    return TextFamily(first.name, "untyped", first.help, first.samples + second.samples)


def _unknown(family: TextFamily) -> Iterator[TextFamily]:
    """A family for each name of the samples: one of this type has no suffixes."""
    of_name: dict[str, list[str]] = {}
    for sample in family.samples:
        of_name.setdefault(re.split("[{ ]", sample, maxsplit=1)[0], []).append(sample)
    for name, samples in of_name.items():
        yield TextFamily(name=name, kind="untyped", help=family.help, samples=tuple(samples))


def _is_sound(family: TextFamily) -> bool:
    """Whether its counts are counts, its quantiles are some, samples of the same labels stand together."""
    if family.kind == "counter":
        return family.name != "_total" and all(_value(sample) >= 0 for sample in family.samples)
    groups: list[Labels] = []
    for sample in family.samples:
        name, labels = name_and_labels(sample.rpartition(" ")[0])
        if family.kind == "summary" and name == family.name:
            if not _is_share(dict(labels).get("quantile", "")) or _value(sample) < 0:
                return False
        else:
            count = _value(sample)
            if not count >= 0:  # NaN is not
                return False
            if not name.endswith("_sum") and not count.is_integer():
                return False
        groups.append(tuple(pair for pair in labels if pair[0] not in ("le", "quantile")))
    together = [labels for labels, _ in itertools.groupby(groups)]
    return len(together) == len(set(together))


def _is_share(text: str) -> bool:
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _value(sample: str) -> float:
    return float(sample.rpartition(" ")[2])
