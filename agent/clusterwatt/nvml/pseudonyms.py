"""Other names for what identifies a machine or a person in what a driver answers.

Replaced are UUIDs of GPUs, MIG devices and vGPUs wherever they stand in a text, serial numbers of boards and
chassis, GUIDs and UUIDs of racks, fabrics and ports, the per-device identifier, names of hosts, process ids
and names of processes. PCI addresses, models, versions and all measurements stay.

The same thing has the same pseudonym within one bundle and another in the next: the key is thrown away.
"""

from __future__ import annotations

import hashlib
import re
import secrets
import uuid
from collections.abc import Callable, Sequence
from typing import Any

UUID = re.compile(r"[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}")
FIRST_PID = 1_000_001

# Members of structures.
SECRET_MEMBERS = frozenset(
    {"serial", "chassisSerialNumber", "clusterUuid", "ibGuid", "rackGuid", "processName", "bytes"}
)
PID_MEMBERS = frozenset({"pid"})
# Functions whose only result identifies, or whose argument or results are process ids.
SECRET_RESULTS = frozenset(
    {
        "nvmlDeviceGetSerial",
        "nvmlDeviceGetPdi",
        "nvmlDeviceGetHostname_v1",
        "nvmlSystemGetProcessName",
        "nvmlVgpuInstanceGetVmID",
        "nvmlVgpuInstanceGetMdevUUID",
    }
)
PID_ARGUMENTS = {
    "nvmlSystemGetProcessName": 0,
    "nvmlDeviceGetAccountingStats": 1,
    "nvmlDeviceGetAccountingStats_v2": 1,
}
PID_RESULTS = {"nvmlDeviceGetAccountingPids": 2}

FIELDS = ("UUIDs in texts", "process ids", *sorted(SECRET_MEMBERS), *sorted(SECRET_RESULTS))


class Pseudonyms:
    """The pseudonyms of one bundle."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._pids: dict[int, int] = {}

    def asked(self, call: str, arguments: Sequence[Any]) -> list[Any]:
        """The arguments of a call under pseudonyms."""
        place = PID_ARGUMENTS.get(call)
        return [
            self._pid(argument) if index == place else self._renamed(argument)
            for index, argument in enumerate(arguments)
        ]

    def answered(self, call: str, results: Sequence[Any]) -> list[Any]:
        """What a call has filled under pseudonyms."""
        if call in SECRET_RESULTS:
            return [_deep(result, self._secret) for result in results]
        place = PID_RESULTS.get(call)
        return [
            _deep(result, self._pid) if index == place else self._renamed(result)
            for index, result in enumerate(results)
        ]

    def text(self, text: str) -> str:
        """A text with other UUIDs."""
        return UUID.sub(lambda found: self._uuid(found[0]), text)

    def _renamed(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self._renamed(entry) for entry in value]
        if isinstance(value, dict):
            return {name: self._member(name, member) for name, member in value.items()}
        return value

    def _member(self, name: str, value: Any) -> Any:
        if name in SECRET_MEMBERS:
            return _deep(value, self._secret)
        return self._pid(value) if name in PID_MEMBERS else self._renamed(value)

    def _uuid(self, text: str) -> str:
        return str(uuid.UUID(bytes=self._digest(text.lower().encode())[:16], version=4))

    def _pid(self, pid: Any) -> Any:
        if not isinstance(pid, int) or pid == 0:
            return pid
        return self._pids.setdefault(pid, FIRST_PID + len(self._pids))

    def _secret(self, value: Any) -> Any:
        """Another number, or another text of the same length and the same kind of characters."""
        if isinstance(value, int):
            return int.from_bytes(self._digest(str(value).encode())[:4], "little") or 1
        if not isinstance(value, str):
            return value
        if UUID.fullmatch(value):
            return self._uuid(value)
        digest, letters = b"", "0123456789" if value.isdigit() else "0123456789abcdef"
        while len(digest) < len(value):
            digest += self._digest(value.encode() + bytes([len(digest) % 256]))
        return "".join(letters[byte % len(letters)] for byte in digest[: len(value)])

    def _digest(self, text: bytes) -> bytes:
        return hashlib.blake2b(text, key=self._key).digest()


def _deep(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, list):
        return [_deep(entry, change) for entry in value]
    if isinstance(value, dict):
        return {
            name: member if name == "version" else _deep(member, change) for name, member in value.items()
        }
    return change(value)
