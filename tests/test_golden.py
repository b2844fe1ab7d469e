"""Pages of whole machines, byte for byte: `pytest --update-golden` writes them anew after a wanted change."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.machines import ROOTS
from tests.nodes import page_in_their_words, page_of, snapshot_of

GOLDEN = Path(__file__).parent / "golden"
MACHINES = ("h100-ib", "roce-bond", "cloud-vm", "azure-vm", "efa", "broken-ports", "nfs-lustre")
CARDS = ("a100", "h100", "h200", "b200", "l40s", "t4", "rtx4080")
CUT = {"gpu-h100-mig": ("h100", {0: ("3g.40gb", "2g.20gb", "1g.10gb", "1g.10gb")})}
IN_THEIR_WORDS = ("h100-ib", "roce-bond", "nfs-lustre")
PAGES = (*MACHINES, *(f"gpu-{card}" for card in CARDS), *CUT)
# Of a node with 8 GPUs; `full` has no limit.
MOST_SERIES = {"minimal": 600, "standard": 1_900}
MOST_SERIES_OF_INSTANCE = {"minimal": 11, "standard": 24, "full": 35}


def compare(name: str, page: bytes, update: bool) -> None:
    file = GOLDEN / f"{name}.prom"
    if update:
        file.write_bytes(page)
    assert page.decode().splitlines() == file.read_text().splitlines()
    assert page == file.read_bytes()


@pytest.mark.parametrize("name", MACHINES)
def test_a_machine_has_its_page(name: str, update_golden: bool) -> None:
    compare(name, page_of(snapshot_of(ROOTS / name)).body, update_golden)


@pytest.mark.parametrize("card", CARDS)
def test_a_node_of_simulated_gpus_has_its_page(card: str, update_golden: bool) -> None:
    compare(f"gpu-{card}", page_of(snapshot_of(None, card)).body, update_golden)


@pytest.mark.parametrize("name", CUT)
def test_a_node_with_a_board_cut_into_instances_has_its_page(name: str, update_golden: bool) -> None:
    card, mig = CUT[name]
    compare(name, page_of(snapshot_of(None, card, mig)).body, update_golden)


@pytest.mark.parametrize("name", IN_THEIR_WORDS)
def test_a_machine_has_its_page_in_the_words_of_node_exporter(name: str, update_golden: bool) -> None:
    compare(f"node-{name}", page_in_their_words(ROOTS / name).body, update_golden)


@pytest.mark.parametrize("page", PAGES)
def test_promtool_finds_nothing(page: str, promtool: Path) -> None:
    text = (GOLDEN / f"{page}.prom").read_bytes()
    done = subprocess.run([promtool, "check", "metrics"], input=text, capture_output=True, check=False)
    assert (done.stdout, done.stderr, done.returncode) == (b"", b"", 0)


@pytest.mark.parametrize("profile", MOST_SERIES)
def test_a_whole_node_stays_within_the_series_of_its_profile(profile: str) -> None:
    page = page_of(snapshot_of(ROOTS / "h100-ib", "h100"), profile)
    assert page.series <= MOST_SERIES[profile]
    assert not page.dropped


@pytest.mark.parametrize("profile", MOST_SERIES_OF_INSTANCE)
def test_a_node_of_56_instances_stays_within_the_series_of_its_profile(profile: str) -> None:
    whole = page_of(snapshot_of(None, "h100"), profile)
    cut = page_of(snapshot_of(None, "h100", {board: ["1g.10gb"] * 7 for board in range(8)}), profile)
    assert cut.series - whole.series <= 56 * MOST_SERIES_OF_INSTANCE[profile]
    assert not cut.dropped


def test_golden_has_no_page_that_nobody_makes() -> None:
    expected = {*PAGES, *(f"node-{name}" for name in IN_THEIR_WORDS)}
    assert {file.stem for file in GOLDEN.iterdir()} == expected
