"""Results of a call, changed by a fault after the driver has filled them."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

from clusterwatt.simulate.faults import Rule
from clusterwatt.simulate.library.calls import Filled

# Members of nvmlValue_t, by NVML_VALUE_TYPE_*.
_UNSIGNED_LONG_LONG = 3
VALUE_MEMBERS = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")


def alter(filled: Sequence[Filled], value: object) -> None:
    """Overwrite results: members of a struct, several numbers, a text, or one number."""
    if isinstance(value, dict):
        for name, member in value.items():
            setattr(filled[0], name, member)
    elif isinstance(value, list | tuple):
        for place, single in zip(filled, value, strict=False):
            place.value = single
    elif isinstance(value, str | bytes):
        buffer = next(place for place in filled if isinstance(place, ctypes.Array))
        buffer.value = value.encode() if isinstance(value, str) else value
    else:
        filled[0].value = value


def alter_entries(filled: Sequence[Filled], rule: Rule) -> None:
    """Fail or overwrite the entries with the rule's id, of a field value array or of a GPM request."""
    found = filled[0]
    entries = found if isinstance(found, ctypes.Array) else found.metrics[: found.numMetrics]
    for entry in entries:
        is_field = hasattr(entry, "fieldId")
        if (entry.fieldId if is_field else entry.metricId) != rule.field:
            continue
        if rule.code is not None:
            entry.nvmlReturn = rule.code
            continue
        if not is_field:
            entry.value = rule.value
        else:
            if entry.nvmlReturn:  # a field that the board does not have has no type either
                entry.valueType = _UNSIGNED_LONG_LONG
            member = "ullVal" if isinstance(rule.value, int) and rule.value >= 0 else "sllVal"
            setattr(entry.value, "dVal" if isinstance(rule.value, float) else member, rule.value)
        entry.nvmlReturn = 0
