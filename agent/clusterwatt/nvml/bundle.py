"""The file in which driver calls are kept: a zip of `manifest.json` and `calls.jsonl`, one call a line."""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from clusterwatt import plain_file, whole_file

FORMAT = "clusterwatt capture"
VERSION = 1
MOST_BYTES = 256 << 20  # of calls.jsonl, unpacked
MANIFEST, CALLS = "manifest.json", "calls.jsonl"


class BundleError(Exception):
    """A bundle that cannot be read or written; the text is one line."""


class Call(msgspec.Struct, frozen=True, omit_defaults=True):
    """One call of the library: what was asked, what came back and when, from the start of the recording.

    `code` is what the function returned; None when it had not returned at the end.
    """

    call: str
    at_s: float
    took_s: float
    asked: list[Any]
    code: int | str | None
    answered: list[Any] = []


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """What a bundle is and where it comes from; versions as the driver states them.

    `missing`: functions that the library does not have. `complete`: whether every call found room.
    `pseudonyms`: what is replaced; empty when all is as the driver said it.
    """

    format: str = FORMAT
    version: int = VERSION
    agent: str
    binding: str
    driver: str = ""
    nvml: str = ""
    cuda: str = ""
    captured_s: float
    seconds: float
    every_seconds: float
    slow_seconds: float
    calls: int
    complete: bool = True
    missing: list[str] = []
    pseudonyms: list[str] = []


class Bundle(msgspec.Struct, frozen=True):
    """A bundle that was read; calls in the order in which they were made."""

    manifest: Manifest
    calls: tuple[Call, ...]


class _Head(msgspec.Struct):
    format: str
    version: int


def write(path: Path, manifest: Manifest, lines: Iterable[bytes]) -> None:
    """Write a bundle whole or not at all, readable by its owner only. Raises BundleError.

    `lines` are calls as JSON.
    """
    try:
        with (
            whole_file.replacing(path, mode=0o600) as file,
            zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive,
        ):
            archive.writestr(MANIFEST, msgspec.json.format(msgspec.json.encode(manifest)))
            archive.writestr(CALLS, b"".join(line + b"\n" for line in lines))
    except OSError as error:
        raise BundleError(f"{path}: the bundle cannot be written: {error.strerror}") from None


def read(path: Path) -> Bundle:
    """A whole bundle. Raises BundleError."""
    with _opened(path) as archive:
        manifest = _manifest(path, archive)
        try:
            if archive.getinfo(CALLS).file_size > MOST_BYTES:
                raise BundleError(f"{path}: larger than any bundle of ours")
            decoder = msgspec.json.Decoder(Call)
            calls = tuple(decoder.decode(line) for line in archive.read(CALLS).splitlines())
        except _DAMAGE as error:
            raise _damaged(path, error) from None
    return Bundle(manifest, calls)


_DAMAGE = (KeyError, EOFError, OSError, ValueError, zipfile.BadZipFile, zlib.error, NotImplementedError)


def _damaged(path: Path, error: Exception) -> BundleError:
    return BundleError(f"{path}: the bundle is damaged: {error}")


def _opened(path: Path) -> zipfile.ZipFile:
    try:
        plain_file.check(path)
        return zipfile.ZipFile(path)
    except OSError as error:
        raise BundleError(f"{path}: cannot be read: {error.strerror}") from None
    except zipfile.BadZipFile:
        raise BundleError(f"{path}: no capture bundle, or only a part of one: its end is missing") from None


def _manifest(path: Path, archive: zipfile.ZipFile) -> Manifest:
    foreign = f"{path}: a zip file, but no bundle that `clusterwatt capture` has written"
    try:
        text = archive.read(MANIFEST)
    except KeyError:
        raise BundleError(foreign) from None
    except _DAMAGE as error:
        raise _damaged(path, error) from None
    try:
        head = msgspec.json.decode(text, type=_Head)
    except ValueError:
        raise BundleError(foreign) from None
    if head.format != FORMAT:
        raise BundleError(foreign)
    if head.version > VERSION:
        raise BundleError(
            f"{path}: written by a newer clusterwatt (format {head.version}, not {VERSION}): "
            "use that version or a later one"
        )
    try:
        return msgspec.json.decode(text, type=Manifest)
    except ValueError as error:
        raise _damaged(path, error) from None
