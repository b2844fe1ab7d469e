"""What the kernel log says of GPUs and switches."""

from __future__ import annotations

from clusterwatt.readings.base import Reading


class KernelLog(Reading, frozen=True):
    """The kernel log can be read: so many records since the agent opened it."""

    records: float


class KernelXid(Reading, frozen=True):
    """A line about an XID. `sequence` is the kernel's number of the record: a line may be told again.

    `pci` is as in the line, without function. `history`: the record was there when the log was opened.
    """

    sequence: int
    pci: str
    xid: int
    detail: str
    wall_s: float
    monotonic_s: float
    history: bool = False
    gpu_instance: int | None = None
    compute_instance: int | None = None


class KernelSxid(Reading, frozen=True):
    """A line about an SXid, as `KernelXid`. `fatal`: the driver's word in the line."""

    sequence: int
    switch: str
    pci: str
    sxid: int
    fatal: bool
    detail: str
    wall_s: float
    monotonic_s: float
    history: bool = False
