"""What each XID (a GPU's) and SXid (an NVSwitch's) means: data/xid.yaml, where its sources stand.

Read at the first event, not at the start: a healthy node never needs it.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec

from clusterwatt.tables import table


class Code(NamedTuple):
    """One code. `severity`: info, warning, critical; `action`: what to do; `text`: why, for people."""

    name: str
    xid_class: str
    severity: str
    action: str
    text: str


class Sxid(NamedTuple):
    """One code of an NVSwitch and the harm that it does: non_fatal, fatal, always_fatal."""

    code: Code
    fatality: str


class Catalogue(msgspec.Struct, frozen=True):
    """The codes by number. An echo follows another code within `echo_window_s` and says nothing new."""

    xids: Mapping[int, Code]
    sxids: Mapping[int, Sxid]
    unknown_xid: Code
    unknown_sxid: Code
    echo_codes: frozenset[int]
    echo_window_s: float

    def xid(self, number: int) -> Code:
        """What an XID means."""
        return self.xids.get(number, self.unknown_xid)

    def sxid(self, number: int, *, fatal: bool) -> Sxid:
        """What an SXid means; the line of the kernel knows best whether it was fatal this time."""
        code, fatality = self.sxids.get(number, Sxid(self.unknown_sxid, ""))
        if not fatal:
            return Sxid(code, "non_fatal")
        return Sxid(code, "always_fatal" if fatality == "always_fatal" else "fatal")


@functools.cache
def catalogue() -> Catalogue:
    """The catalogue, read once."""
    document = table("xid")
    policy = document["policy"]
    return Catalogue(
        xids=dict(_xids(document)),
        sxids=dict(_sxids(document["sxids"])),
        unknown_xid=_code(
            "unknown", policy["unknown_code"], text="Not in the catalogue: read the kernel log."
        ),
        unknown_sxid=_code(
            "unknown",
            {"class": document["sxids"]["defaults"]["class"], **document["sxids"]["defaults"]["unknown"]},
            text="Not in the catalogue: read the kernel log.",
        ),
        echo_codes=frozenset(policy["echo_codes"]),
        echo_window_s=float(policy["echo_window_seconds"]),
    )


def _code(name: str, entry: Mapping[str, Any], *, text: str) -> Code:
    return Code(name, entry["class"], entry["severity"], entry["action"], text)


def _xids(document: Mapping[str, Any]) -> Iterator[tuple[int, Code]]:
    unused = document["unused_on_ampere_and_newer"]
    for number in unused["codes"]:
        meaning = unused["legacy_meaning"].get(number, "no public meaning")
        yield number, _code("legacy", unused["defaults"], text=f"Of older cards: {meaning}.")
    for entry in document["xids"]:
        yield entry["code"], _code(entry["name"], entry, text=entry["text"])


def _sxids(document: Mapping[str, Any]) -> Iterator[tuple[int, Sxid]]:
    names, of_all = document["names"], {"class": document["defaults"]["class"]}
    for group in document["groups"]:
        for number in group["codes"]:
            code = _code(
                names.get(number, group["fatality"]), {**of_all, **group}, text=_sentence(group["meaning"])
            )
            yield number, Sxid(code, group["fatality"])
    for entry in document["single"]:
        number = entry["code"]
        yield number, Sxid(_code(names[number], entry, text=_sentence(entry["text"])), entry["fatality"])


def _sentence(text: str) -> str:
    return f"{text[0].upper()}{text[1:]}."
