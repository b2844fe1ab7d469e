"""Addresses of boards, with what they keep of the board that they are on."""

from __future__ import annotations

import re

from dashboards.board import Json, uid

TITLES = {
    "cluster": "Cluster",
    "job": "Job",
    "node": "Node",
    "gpu": "GPU",
    "fabric": "Fabric",
    "storage": "Storage",
    "energy": "Energy, carbon, cost",
    "fleet": "Fleet health",
}


def link(board: str, **values: str) -> str:
    """Address of another board with range, source and cluster of this one, and further variables."""
    parts = ["${__url_time_range}", "${datasource:queryparam}", "${cluster:queryparam}"]
    parts += [f"var-{name}={value}" for name, value in values.items()]
    return f"/d/{uid(board)}?{'&'.join(parts)}"


def cell(name: str) -> str:
    """The value of a column in the same row, for a link."""
    return f'${{__data.fields["{name}"]}}'


def label(name: str) -> str:
    """The value of a label of a line, for a link."""
    return f"${{__field.labels.{name}}}"


TO_JOB = link("job", job_id=cell("Job"))
TO_SHORT_JOB = link("job", job_id=cell("job_id"))
TO_NODE = link("node", instance=cell("Node"))
TO_GPU = link("gpu", instance=cell("Node"), uuid=cell("uuid"))


def says(address: str) -> str:
    """The text of a link."""
    found = re.match(r"/d/cw-(\w+)", address)
    assert found, address
    return f"Open: {TITLES[found[1]]}"


def linked(address: str) -> Json:
    """A link of a value, as a property of its field."""
    return {"id": "links", "value": [{"title": says(address), "url": address, "targetBlank": False}]}


def panel_links(address: str) -> tuple[Json, ...]:
    """A link of a whole panel, or none."""
    return ({"title": says(address), "url": address, "targetBlank": False},) if address else ()
