"""A card is data: what a contributor writes for a new one is checked, and every name leads to it."""

from __future__ import annotations

from typing import Any

import pytest

from clusterwatt.cli.simulate import PROFILES
from clusterwatt.simulate.cards import Card, cards, cards_of
from clusterwatt.tables import table


@pytest.fixture
def tables() -> dict[str, dict[str, Any]]:
    """The tables of the shipped cards, to be changed."""
    return dict(table("simulated-cards"))


def test_a_new_card_says_only_what_is_different(tables: dict[str, dict[str, Any]]) -> None:
    tables["h100-pcie"] = {"like": "h100", "name": "NVIDIA H100 PCIe", "power_limit_w": 350}
    tables["h100-pcie-capped"] = {"like": "h100-pcie", "power_limit_w": 300}
    made = cards_of(tables)
    assert made["h100-pcie-capped"].name == "NVIDIA H100 PCIe"
    assert made["h100-pcie-capped"].power_limit_w == 300.0
    assert made["h100-pcie-capped"].mig_profiles == made["h100"].mig_profiles
    assert made["h100"] == cards()["h100"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"like": "h100", "power_limits_w": 350}, r"simulated-cards\.yaml: new: .*power_limits_w"),
        ({"name": "NVIDIA X"}, r"simulated-cards\.yaml: new: .*architecture"),
        ({"like": "h100", "cores": "many"}, r"simulated-cards\.yaml: new: .*cores"),
        ({"like": "a100", "clocks_max": {"sm": 1410}}, r"simulated-cards\.yaml: new: .*memory.*clocks_max"),
        ({"like": "h100", "mig_profiles": [["1g.5gb", 0, 1]]}, r"simulated-cards\.yaml: new: .*mig_profiles"),
    ],
)
def test_a_mistake_names_the_card_and_the_key(
    wrong: dict[str, object], told: str, tables: dict[str, dict[str, Any]]
) -> None:
    tables["new"] = wrong
    with pytest.raises(ValueError, match=told):
        cards_of(tables)


def test_what_is_left_out_is_not_offered(tables: dict[str, dict[str, Any]]) -> None:
    """A GeForce board says nothing of error correction, links, MIG and its memory's temperature."""
    card: Card = cards_of(tables)["rtx4080"]
    assert not card.ecc
    assert card.nvlinks == 0
    assert card.mig_profiles == ()
    assert card.memory_temperature_idle_c is None


def test_every_card_can_be_in_a_simulated_cluster() -> None:
    assert tuple(cards()) == PROFILES
