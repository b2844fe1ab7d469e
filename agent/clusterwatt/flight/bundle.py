"""A frozen ring as a file: a zip with a manifest and the ring's chunks.

`manifest.json` names format, version, agent, node, reason and the times; `0001.flight` and so on are the
chunks (`flight.ring`), oldest first.
"""

from __future__ import annotations

import re
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path

import msgspec

from clusterwatt import __version__, plain_file, whole_file
from clusterwatt.flight.ring import RECORDED, moments
from clusterwatt.readings.base import Reading

FORMAT = "clusterwatt-flight"
VERSION = 1
SUFFIX = ".flight.zip"
MAX_CHUNKS = 1_000
MAX_CHUNK_BYTES = 32 << 20

BY_TAG: Mapping[str, type[Reading]] = {kind.__name__: kind for kind in RECORDED}


class BundleError(Exception):
    """A file is no flight bundle, or a damaged one; the message is one line that names it."""


class Manifest(msgspec.Struct, frozen=True):
    """What a bundle says of itself. Times are Unix seconds."""

    node: str
    reason: str
    frozen_s: float
    agent: str = __version__
    format: str = FORMAT
    version: int = VERSION


class Moment(msgspec.Struct, frozen=True):
    """What was known at one time."""

    wall_s: float
    monotonic_s: float
    readings: tuple[Reading, ...]


def write(directory: Path, manifest: Manifest, chunks: Sequence[bytes]) -> Path:
    """Write a bundle for its owner only, named after time and reason. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    at = datetime.fromtimestamp(manifest.frozen_s, timezone.utc)
    reason = re.sub(r"[^a-z0-9]+", "-", manifest.reason.lower()).strip("-")[:60]
    path = directory / f"{at:%Y%m%dT%H%M%SZ}-{reason}{SUFFIX}"
    with (
        whole_file.replacing(path, mode=0o600) as file,
        zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as bundle,
    ):
        bundle.writestr("manifest.json", msgspec.json.encode(manifest))
        for number, chunk in enumerate(chunks, 1):
            bundle.writestr(f"{number:04}.flight", chunk)
    return path


def keep_newest(directory: Path, count: int, max_bytes: int, now_s: float) -> None:
    """Remove the oldest bundles beyond a number and a size, and abandoned drafts; the newest always stays."""
    whole_file.remove_abandoned(directory, now_s)
    bundles = sorted(directory.glob(f"*{SUFFIX}"), reverse=True)
    total = 0
    for kept, path in enumerate(bundles):
        total += path.stat().st_size
        if kept > 0 and (kept >= count or total > max_bytes):
            path.unlink()


def is_flight(path: Path) -> bool:
    """Whether a file calls itself a flight bundle; False also for what cannot be read."""
    try:
        plain_file.check(path)
        with zipfile.ZipFile(path) as bundle:
            said = msgspec.json.decode(_content(bundle, "manifest.json"))
    except (OSError, KeyError, ValueError, zipfile.BadZipFile, msgspec.DecodeError):
        return False
    return isinstance(said, dict) and said.get("format") == FORMAT


def read(path: Path) -> tuple[Manifest, list[Moment]]:
    """A bundle's manifest and moments, oldest first. Readings that this version does not know are left out.

    Raises BundleError.
    """
    try:
        plain_file.check(path)
        with zipfile.ZipFile(path) as bundle:
            manifest = msgspec.json.decode(_content(bundle, "manifest.json"), type=Manifest)
            if manifest.format != FORMAT or manifest.version > VERSION:
                raise BundleError(
                    f"{path}: {manifest.format} version {manifest.version}; this agent reads {FORMAT} up to "
                    f"version {VERSION}"
                )
            names = sorted(name for name in bundle.namelist() if name.endswith(".flight"))[:MAX_CHUNKS]
            found = [moment for name in names for moment in _moments(_content(bundle, name))]
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except (zipfile.BadZipFile, KeyError, msgspec.MsgspecError, ValueError) as error:
        raise BundleError(f"{path}: is no flight bundle, or a damaged one: {error}") from None
    return manifest, found


def _content(bundle: zipfile.ZipFile, name: str) -> bytes:
    if bundle.getinfo(name).file_size > MAX_CHUNK_BYTES:
        raise ValueError(f"{name} is too large")
    return bundle.read(name)


def _moments(chunk: bytes) -> Iterator[Moment]:
    for moment in moments(chunk):
        wall_s, monotonic_s, rows = msgspec.convert(moment, tuple[float, float, list[list[object]]])
        readings = tuple(reading for row in rows if (reading := _reading(row)) is not None)
        yield Moment(wall_s, monotonic_s, readings)


def _reading(row: list[object]) -> Reading | None:
    kind = BY_TAG.get(str(row[0])) if row else None
    if kind is None:
        return None
    try:
        return msgspec.convert(row, kind)
    except msgspec.ValidationError:
        return None  # this version's fields are others
