"""Files that others read while they are written: replaced whole, or not at all."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path


def write(path: Path, text: str) -> None:
    """Put the text in place of what is there, for everybody to read. Raises OSError, and leaves no draft."""
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            os.fchmod(file.fileno(), 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
