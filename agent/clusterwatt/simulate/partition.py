"""Cuts a board into MIG instances the way the driver places them."""

from __future__ import annotations

import hashlib
import uuid
from collections.abc import Sequence

from clusterwatt.simulate.cards import MigProfile
from clusterwatt.simulate.gpu import Gpu, MigDevice
from clusterwatt.simulate.work import FREE, NOTHING, Process, Signals, Tenant, Weighted

_SLICES = 8  # of memory
_SEVEN_SLICES, _FOUR_SLICES, _THREE_SLICES = 7, 4, 3


def partition(
    gpu: Gpu, names: Sequence[str], tenants: Sequence[Tenant], *, seed: int, generation: int
) -> list[MigDevice]:
    """Place instances of these profiles, in this order; each gets one compute instance of its full size.

    tenants: one for each instance, those left out are free. generation: how often the board has been cut; the
    same instances cut anew have other UUIDs. Raises ValueError when they do not fit.
    """
    profiles = {profile.name: profile for profile in gpu.card.mig_profiles}
    taken = [False] * _SLICES
    devices = []
    for slot, name in enumerate(names):
        if name not in profiles:
            raise ValueError(f"{gpu.card.name} has no MIG profile {name!r}, only {', '.join(profiles)}")
        profile = profiles[name]
        start = _place(profile, taken)
        instance = _instance_id(profile, start)
        devices.append(
            MigDevice(
                gpu,
                profile,
                slot=slot,
                start=start,
                instance=instance,
                uuid=_uuid(seed, gpu.board, instance, generation),
                tenant=tenants[slot] if slot < len(tenants) else FREE,
            )
        )
    return devices


def _starts(profile: MigProfile) -> Sequence[int]:
    """Where an instance may begin, the driver's choice first."""
    if profile.slices == _THREE_SLICES:
        return (4, 0)
    if profile.slices >= _FOUR_SLICES:
        return (0,)
    return range(0, 7, profile.memory_slices)


def _place(profile: MigProfile, taken: list[bool]) -> int:
    for start in _starts(profile):
        place = slice(start, start + profile.memory_slices)
        if start + profile.memory_slices <= _SLICES and not any(taken[place]):
            taken[place] = [True] * profile.memory_slices
            return start
    raise ValueError(f"no room for another {profile.name}")


def _instance_id(profile: MigProfile, start: int) -> int:
    """As seen: H100 3g 2, 2g 3, 1g 9 and 10 (driver 590.48.01); A100 1g with two memory slices 3 to 6."""
    if profile.slices == _SEVEN_SLICES:
        return 0
    if profile.memory_slices == 4:
        return 1 + start // 4
    return 3 + start // 2 if profile.memory_slices == 2 else 7 + start


def _uuid(seed: int, board: int, instance: int, generation: int) -> str:
    text = f"clusterwatt simulated MIG device {seed}/{board}/{instance}/{generation}"
    return f"MIG-{uuid.UUID(bytes=hashlib.sha256(text.encode()).digest()[:16], version=4)}"


def usual_tenants(tenant: Tenant) -> tuple[Tenant, ...]:
    """Tenants of a board's instances: its own on the first, a holder that does nothing on the second."""
    pid = 5000 + max((process.pid for process in tenant.processes), default=0)
    return tenant, Tenant(NOTHING, (Process(pid, "/usr/bin/python3", memory_share=0.3, sm_share=0.0),))


def whole(devices: Sequence[MigDevice], multiprocessors: int) -> Signals:
    """What the board does: its instances together, each by its share of the multiprocessors."""
    shares = [(device.profile.multiprocessors / multiprocessors, device) for device in devices]
    return Signals(
        **{
            name: Weighted([(share, device.tenant.signals.of(name)) for share, device in shares])
            for name in Signals.__struct_fields__
        }
    )
