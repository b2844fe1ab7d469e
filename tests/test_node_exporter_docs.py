"""docs/NODE_EXPORTER.md: what it calls working is on the page, what it calls silent is not."""

from __future__ import annotations

import pytest

from clusterwatt.expose.node_exporter import render
from clusterwatt.readings.agent import TextFile
from clusterwatt.readings.base import Failure, Reading, by_type
from clusterwatt.readings.storage import Filesystem, FilesystemProbe
from tests.differences import FAMILY, Differences, rows
from tests.e2e.page import Page
from tests.expose.sites import snapshot
from tests.machines import ROOTS, put
from tests.nodes import in_their_words

MADE = {
    "/proc/sys/fs/file-nr": "1024\t0\t2048\n",
    "/proc/sys/net/netfilter/nf_conntrack_count": "1\n",
    "/proc/sys/net/netfilter/nf_conntrack_max": "2\n",
    "/proc/mdstat": "Personalities : [raid1]\nmd0 : active raid1 sdb[1] sda[0]\n  9 blocks [2/2] [UU]\n\n",
    "/proc/vmstat": "pgmajfault 1\n",
}
RULES = list(rows("Rules of node-mixin"))
PANELS = list(rows("Rows of the board Node Exporter Full"))


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> frozenset[str]:
    """Every family that the page has on one machine or another."""
    made = tmp_path_factory.mktemp("made")
    for path, text in MADE.items():
        put(made, path, text)
    found: set[str] = set()
    of_ours = [
        Filesystem("/", "ext4", 4.0, 3.0, 3.0, 2.0, 1.0, 0.0),
        FilesystemProbe("/", "ext4", 1.0, 0.1),
        TextFile("a.prom", 1.0, 0.0),
    ]
    for root in (*ROOTS.iterdir(), made):
        readings: list[Reading] = [*in_their_words(root), *of_ours]
        parts = by_type(reading for reading in readings if not isinstance(reading, Failure))
        page = render(
            snapshot(1, *(reading for part in parts.values() for reading in part)), 100_000, openmetrics=False
        )
        found |= Page(page.body.decode()).names()
    return frozenset(found)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule[0])
def test_a_rule_works_when_all_that_it_needs_is_there(rule: list[str], names: frozenset[str]) -> None:
    _, state, needs = rule
    families = set(FAMILY.findall(needs))
    assert families
    assert state in ("works", "silent")
    assert (families <= names) == (state == "works"), families - names


@pytest.mark.parametrize("row", PANELS, ids=lambda row: row[0])
def test_a_panel_is_silent_for_want_of_families(row: list[str], names: frozenset[str]) -> None:
    _, state, silent = row
    families = set(FAMILY.findall(silent))
    assert not families & names
    assert state == "works" if silent == "-" else state in ("partly", "silent") and families


def test_the_document_has_every_row_and_rule() -> None:
    assert len(PANELS) == 16
    assert len({rule[0] for rule in RULES}) == 36


def test_a_difference_that_is_not_in_the_table_is_not_allowed() -> None:
    differences = Differences()
    assert differences.allow("node_filesystem_size_bytes", "not here")
    assert not differences.allow("node_disk_read_bytes_total", "value")
    assert differences.labels("node_disk_info") == {"rotational"}
