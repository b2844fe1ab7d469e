"""Every family of the contract is on some page of a fleet, but for those named here, with the reason."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest

from clusterwatt.fleet import scenario
from clusterwatt.simulate.cluster import Cluster
from clusterwatt.simulate.market import BUDGETS
from tests.fleet.fleets import Ticking, looped, settings
from tests.test_contract import CONTRACT, contract

NOT_THERE = {
    "series_dropped_total": "no page of the fleet reaches its limit",
    "textfile_last_modified_timestamp_seconds": "no text files on simulated nodes",
    "textfile_errors_total": "as above",
    "tls_certificate_expiry_timestamp_seconds": "the fleet's port is without TLS",
    "tls_reload_errors_total": "as above",
}


@pytest.mark.full
@looped
async def test_every_family_is_on_some_page(tmp_path: Path) -> None:
    if not CONTRACT.exists():
        pytest.skip(f"this machine has no contract at {CONTRACT}")
    faults = scenario.load("everything", Cluster(16, 8, 1), BUDGETS)
    made_of = msgspec.structs.replace(
        settings(16, level="full"),
        profiles=("h100", "gb200", "b200", "a100", "l40s", "t4", "rtx4080"),
        every_s=15.0,
    )
    ticking = Ticking(made_of, tmp_path, faults)
    found: set[str] = set()
    for _ in range(4):
        await ticking.tick(14)
        for node in ticking.fleet.nodes:
            page = (await node.site.page()).body.decode()
            found.update(re.findall(r"^# TYPE clusterwatt_(\S+)", page, re.MULTILINE))
    await ticking.close()
    assert set(contract()) - found == NOT_THERE.keys()
