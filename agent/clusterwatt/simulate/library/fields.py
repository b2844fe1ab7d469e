"""nvmlDeviceGetFieldValues: one call for many quantities, each with its own return code."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from clusterwatt.simulate.gpu import Gpu
from clusterwatt.simulate.library.alter import VALUE_MEMBERS
from clusterwatt.simulate.library.calls import (
    INVALID_ARGUMENT,
    NOT_SUPPORTED,
    Filled,
    Refused,
    needs,
    offered,
    on_gpu,
)
from clusterwatt.simulate.library.clocks import held_down_ns
from clusterwatt.simulate.library.power import AVERAGE_S, milli
from clusterwatt.simulate.work import mean

# NVML_VALUE_TYPE_*
DOUBLE, UNSIGNED_INT, UNSIGNED_LONG_LONG, SIGNED_INT = 0, 1, 3, 5

# NVML_POWER_SCOPE_*
SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY = range(3)

Reader = Callable[[Gpu, int, float], "int | float"]


class Field(msgspec.Struct, frozen=True):
    """A field: the type of its value, the function that reads it, and the driver branch that brought it."""

    value_type: int
    read: Reader
    since: int


FIELDS: dict[int, Field] = {}


def on_field(value_type: int, *ids: int, since: int = 0) -> Callable[[Reader], Reader]:
    """Register a reader of fields; it is given the GPU, the scope and the time."""

    def register(reader: Reader) -> Reader:
        for field in ids:
            FIELDS[field] = Field(value_type, reader, since)
        return reader

    return register


@on_gpu("nvmlDeviceGetFieldValues")
def field_values(gpu: Gpu, count: int, values: Filled) -> None:
    """Fill every entry; one that fails says so itself and spoils no other."""
    if count <= 0:
        raise Refused(INVALID_ARGUMENT)
    now_s = gpu.now_s()
    now_us = int(now_s * 1e6)
    for entry in values[:count]:
        field = entry.fieldId
        entry.timestamp = now_us
        try:
            known = _known(field, gpu.branch)
            setattr(entry.value, VALUE_MEMBERS[known.value_type], known.read(gpu, entry.scopeId, now_s))
            entry.valueType = _stated_type(field, known.value_type, gpu.branch)
            entry.nvmlReturn = 0
        except Refused as refused:
            entry.nvmlReturn = refused.code


def _known(field: int, branch: int) -> Field:
    known = FIELDS.get(_present_id(field, branch))
    if known is None or branch < known.since:
        raise Refused(NOT_SUPPORTED)
    return known


def _stated_type(field: int, value_type: int, branch: int) -> int:
    """The type that the driver states, which is not always that of the value.

    NVML leaves the type of ids 1 to 31 at 0, and since r545 states a double for the memory temperature
    (comments in NVIDIA/DCGM, DcgmCacheManager.cpp).
    """
    if field <= 31 or (field == 82 and branch >= 545):
        return DOUBLE
    return value_type


# --- ids that moved ----------------------------------------------------------------------------------

_SLOWDOWNS = (269, 270, 271)  # software thermal, hardware thermal, hardware power brake: the ids since r590
_SLOWDOWNS_R575 = (251, 252, 253)


def _present_id(field: int, branch: int) -> int:
    """Today's id of a field; r575 and r580 counted the slowdowns at 251 to 253, before there was none."""
    if branch < 590:
        if field in _SLOWDOWNS:
            return -1
        if field in _SLOWDOWNS_R575 and branch >= 575:
            return _SLOWDOWNS[_SLOWDOWNS_R575.index(field)]
    return field


# --- power, energy, temperature ----------------------------------------------------------------------


@on_field(UNSIGNED_INT, 82)
def memory_temperature(gpu: Gpu, scope: int, now_s: float) -> int:
    return round(offered(gpu.memory_temperature_c(now_s)))


@on_field(UNSIGNED_LONG_LONG, 83)
def total_energy(gpu: Gpu, scope: int, now_s: float) -> int:
    return milli(gpu.energy_j(now_s))


@on_field(UNSIGNED_LONG_LONG, 191)
def energy_in_scope(gpu: Gpu, scope: int, now_s: float) -> int:
    needs(scope == SCOPE_GPU)
    return milli(gpu.energy_j(now_s))


def _or_of_the_module(
    of_gpu: Callable[[Gpu, float], float], of_module: Callable[[Gpu, float], float | None]
) -> Reader:
    """A quantity in watts of the GPU, or of the module that it sits on."""

    def scoped(gpu: Gpu, scope: int, now_s: float) -> int:
        needs(scope in {SCOPE_GPU, SCOPE_MODULE})
        return milli(of_gpu(gpu, now_s) if scope == SCOPE_GPU else offered(of_module(gpu, now_s)))

    return scoped


def _module_limit(name: str) -> Callable[[Gpu, float], float | None]:
    return lambda gpu, _now_s: None if gpu.card.module_power is None else getattr(gpu.card.module_power, name)


for _ids, _of_gpu, _of_module in (
    ((186,), lambda gpu, now_s: gpu.power_w(now_s), lambda gpu, now_s: gpu.module_power_w(now_s)),
    ((187,), lambda gpu, _now_s: gpu.card.power_limit_min_w, _module_limit("limit_min_w")),
    ((188,), lambda gpu, _now_s: gpu.card.power_limit_max_w, _module_limit("limit_max_w")),
    ((189,), lambda gpu, _now_s: gpu.card.power_limit_w, _module_limit("limit_w")),
    ((190, 192), lambda gpu, _now_s: gpu.power_limit_w, _module_limit("limit_w")),
):
    on_field(UNSIGNED_INT, *_ids)(_or_of_the_module(_of_gpu, _of_module))


@on_field(UNSIGNED_INT, 185)
def power_average(gpu: Gpu, scope: int, now_s: float) -> int:
    if scope == SCOPE_MEMORY:
        idle, loaded = offered(gpu.card.memory_power_idle_w), offered(gpu.card.memory_power_loaded_w)
        return milli(idle + (loaded - idle) * mean(gpu.signals.sm, now_s - AVERAGE_S, now_s))
    if scope == SCOPE_MODULE:
        return milli(offered(gpu.module_power_w(now_s, AVERAGE_S)))
    needs(scope == SCOPE_GPU and gpu.card.power_average)
    return milli(gpu.mean_power_w(now_s, AVERAGE_S))


def _margin(name: str) -> Reader:
    def read(gpu: Gpu, scope: int, now_s: float) -> int:
        if gpu.card.margins is None:
            raise Refused(NOT_SUPPORTED)
        return int(offered(getattr(gpu.card.margins, name)))

    return read


for _id, _name in ((193, "shutdown"), (194, "slowdown"), (195, "memory_max"), (196, "gpu_max")):
    on_field(SIGNED_INT, _id)(_margin(_name))


# --- clock event reasons -----------------------------------------------------------------------------


def _held_down(reason: str) -> Reader:
    def read(gpu: Gpu, scope: int, now_s: float) -> int:
        return held_down_ns(gpu, reason, now_s)

    return read


for _id, _name in (
    (74, "sw_power_cap"),
    (75, "sw_thermal"),
    (76, "sync_boost"),
    (77, "board"),
    (78, "low_use"),
    (79, "reliability"),
    (269, "sw_thermal"),
    (270, "hw_thermal"),
    (271, "hw_power_brake"),
):
    on_field(UNSIGNED_LONG_LONG, _id)(_held_down(_name))
