"""`python -m tests.tools.xid_table`: write the codes of docs/XIDS.md, which the agent's data/xid.yaml has."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from clusterwatt.tables import table

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "XIDS.md"
MARK = "<!-- From here on `make docs` writes what agent/clusterwatt/data/xid.yaml says: change that. -->\n"

# What the words of the catalogue ask of people.
ACTIONS = {
    "none": "nothing; read what it is",
    "restart_app": "restart the job, the node may stay in service",
    "reset_gpu": "drain the node, end what holds the GPU, reset it (`nvidia-smi --gpu-reset -i INDEX`); "
    "where GPUs share NVLink the driver may want all of them reset together",
    "reboot_node": "drain the node and reboot it; where the text says so, a power cycle",
    "drain_rma": "drain the node and have the card replaced",
    "check_cabling": "drain the node and check what the link runs over: bridge, tray, cable",
}


def written() -> str:
    """The document: what people wrote, up to the mark, and the codes."""
    by_hand, _, _ = DOCUMENT.read_text(encoding="utf-8").partition(MARK)
    return by_hand + MARK + "\n".join(_codes(table("xid")))


def _codes(catalogue: Mapping[str, Any]) -> Iterator[str]:
    yield "\n## Actions\n"
    yield from _table(
        ("Action", "Is"), ((f"`{action}`", ACTIONS[action]) for action in catalogue["enums"]["action"])
    )
    yield "\nWhat the driver asks for (`clusterwatt_gpu_recovery_action`) outranks the action of a code."
    yield "\n## XIDs\n"
    yield "*Again* is for the same code on the same GPU within seven days, or after two reboots."
    yield ""
    yield from _table(
        ("Code", "Name", "Class", "Severity", "Action", "Again", "Job dies", "What it is", "Sources"),
        map(_xid, sorted(catalogue["xids"], key=lambda entry: entry["code"])),
    )
    unused = catalogue["unused_on_ampere_and_newer"]
    yield (
        f"\nUnused on Ampere and newer, of class {unused['defaults']['class']} and severity "
        f"{unused['defaults']['severity']} where one comes up: {_numbers(unused['codes'])}. "
        "A code that stands nowhere here is a `hardware` `warning`: read the kernel log."
    )
    yield "\n## SXids\n"
    yield "Of NVSwitches, in nodes with HGX A100 and H100."
    yield ""
    sxids = catalogue["sxids"]
    yield from _table(
        ("Codes", "Fatality", "Severity", "Action", "Again", "What it is"),
        [
            *(_sxid(_numbers(group["codes"]), group, group["meaning"]) for group in sxids["groups"]),
            *(_sxid(str(entry["code"]), entry, entry["text"]) for entry in sxids["single"]),
        ],
    )
    yield "\n## Sources\n"
    yield from _table(("Name", "Is"), catalogue["sources"].items())
    yield ""


def _xid(entry: Mapping[str, Any]) -> Sequence[str]:
    return (
        str(entry["code"]),
        entry["name"],
        entry["class"],
        entry["severity"],
        _action(entry["action"]),
        _action(entry.get("escalate_to", "")),
        entry["job_dies"],
        entry["text"],
        ", ".join(entry["sources"]),
    )


def _sxid(codes: str, entry: Mapping[str, Any], meaning: str) -> Sequence[str]:
    actions = _action(entry["action"]), _action(entry.get("escalate_to", ""))
    return codes, entry["fatality"], entry["severity"], *actions, meaning


def _action(name: str) -> str:
    return f"`{name}`" if name else ""


def _numbers(codes: Iterable[int]) -> str:
    return ", ".join(map(str, codes))


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "|---" * len(head) + "|"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
