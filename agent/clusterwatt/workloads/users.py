"""Names of users, from /etc/passwd below the node's root (passwd(5)).

The file only: a name service may ask the network, and hang with it. A user whom only such a service knows
goes by the number.
"""

from __future__ import annotations

import os

from clusterwatt import plain_file

MAX_BYTES = 4 << 20
NAME, UID = 0, 2  # places in a line


class Users:
    """Names by number; a name once known stays."""

    def __init__(self, root: str) -> None:
        self._path = f"{root}/etc/passwd"
        self._names: dict[str, str] = {}
        self._modified_ns = -1

    def name(self, uid: str) -> str:
        """The user's name; the number itself where it has none."""
        if uid and uid not in self._names:
            self._read()
        return self._names.get(uid, uid)

    def _read(self) -> None:
        """Read the file if it is not the one that was read before; without it nobody has a name."""
        try:
            with plain_file.opened(self._path) as file:
                modified_ns = os.fstat(file.fileno()).st_mtime_ns
                if modified_ns == self._modified_ns:
                    return
                self._modified_ns = modified_ns
                lines = file.read(MAX_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return
        for line in lines:
            fields = line.split(":")
            if len(fields) > UID and fields[UID].isdigit():
                self._names.setdefault(fields[UID], fields[NAME])
