"""Numbers of the driver's interface (nvml.h) that we use, under names that say what they select.

They are written down here, not taken from the binding: an older binding lacks the newer ones, while the
driver decides what it answers. A test compares them with the binding that is installed.

A field is an id and a scope. A scope left out is 0, which silently means "link 0" or "the GPU".
"""

from __future__ import annotations

Field = tuple[int, int]

# Versioned structures carry their size and their version.
MEMORY_V2 = 0x02000028

SENSOR_CORE = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEMORY_MAX, THRESHOLD_CORE_MAX = range(4)
CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO = range(4)

SAMPLES_GPU_UTILIZATION = 1
SAMPLES_MEMORY_UTILIZATION = 2

# Scopes of the power fields. nvml.h contradicts itself on 2: the constants say memory.
SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY = range(3)

FIELD_MEMORY_TEMPERATURE: Field = (82, 0)
FIELD_ENERGY: Field = (83, 0)
FIELD_POWER_AVERAGE = 185  # with a scope
FIELD_POWER_INSTANT = 186  # with a scope

ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
