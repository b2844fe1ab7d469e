"""Which end-to-end tests want the machine for themselves."""

from __future__ import annotations

import pytest

# They compare rates or times with what other programs or the clock say.
ALONE = frozenset(
    {
        "test_beside_node_exporter",
        "test_faults",
        "test_fleet",
        "test_ledger_kill",
        "test_metrics_page",
        "test_node_exporter_names",
        "test_rules_at_scale",
    }
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark them."""
    for item in items:
        if item.path.stem in ALONE:
            item.add_marker("alone")
