"""Files that others read while they are written: replaced whole, or not at all."""

from __future__ import annotations

import contextlib
import glob
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

DRAFT = ".draft"
ABANDONED_S = 3_600.0


@contextlib.contextmanager
def replacing(path: Path, *, mode: int = 0o644, sync: bool = True) -> Iterator[BinaryIO]:
    """A draft to write into, which takes the path's place when the block has ended well.

    Raises OSError, and leaves no draft. `sync`: the content is on the disk before it gets the name, so that
    after a loss of power the old file is there or the new one. A draft's name does not end as that of the
    file does, so that nobody who reads all `*.json` or `*.yaml` of a folder takes it for one of them.
    Abandoned drafts of the same file are removed.
    """
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=DRAFT)
    try:
        with os.fdopen(descriptor, "wb") as file:
            with contextlib.suppress(OSError):  # another user's in a folder with the sticky bit
                remove_abandoned(path.parent, os.fstat(descriptor).st_mtime, of=path.name)
            os.fchmod(descriptor, mode)
            yield file
            if sync:
                file.flush()
                os.fsync(descriptor)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):  # what went wrong before is what is to be told
            os.unlink(draft)
        raise


def remove_abandoned(directory: Path, now_s: float, *, of: str | None = None) -> None:
    """Remove drafts of writers that were killed: those an hour old; `of`: of this file. Raises OSError."""
    name = "" if of is None else f"{glob.escape(of)}."
    for draft in directory.glob(f".{name}*{DRAFT}"):
        with contextlib.suppress(FileNotFoundError):  # its writer lives, and has just ended well
            if now_s - draft.lstat().st_mtime > ABANDONED_S:
                draft.unlink()


def write(path: Path, text: str, *, sync: bool = True) -> None:
    """Put the text in place of what is there, for everybody to read. Raises OSError, and leaves no draft."""
    with replacing(path, sync=sync) as file:
        file.write(text.encode())
