"""Numbers of the driver's interface (nvml.h) that we use, under names that say what they select.

They are written down here, not taken from the binding: an older binding lacks the newer ones, while the
driver decides what it answers. A test compares them with the binding that is installed.

A field is an id and a scope. A scope left out is 0, which silently means "link 0" or "the GPU".
"""

from __future__ import annotations

from collections.abc import Mapping

Field = tuple[int, int]

NOT_AVAILABLE = 0xFFFFFFFF  # what 32-bit answers hold when there is nothing to say

# Versioned structures carry their size and their version.
MEMORY_V2 = 0x02000028

SENSOR_CORE = 0
THRESHOLD_SHUTDOWN, THRESHOLD_SLOWDOWN, THRESHOLD_MEMORY_MAX, THRESHOLD_CORE_MAX = range(4)
CLOCK_GRAPHICS, CLOCK_SM, CLOCK_MEMORY, CLOCK_VIDEO = range(4)

SAMPLES_GPU_UTILIZATION = 1
SAMPLES_MEMORY_UTILIZATION = 2

ECC_CORRECTED, ECC_UNCORRECTED = range(2)
ECC_VOLATILE, ECC_AGGREGATE = range(2)
LOCATION_DRAM, LOCATION_SRAM = 2, 7

VIRTUALIZATION_VGPU = 2  # a guest whose GPU is a part of one

INFOROM_OEM, INFOROM_ECC, INFOROM_POWER = range(3)
LICENSE_VGPU = 1  # a licensable feature: a vGPU

NVLINK_ACTIVE, NVLINK_SLEEP = 1, 2

# Scopes of the power fields. nvml.h contradicts itself on 2: the constants say memory.
SCOPE_GPU, SCOPE_MODULE, SCOPE_MEMORY = range(3)
SCOPE_ALL_LINKS = 0xFFFFFFFF  # the sum over all links

FIELD_ECC_TOTALS: Mapping[Field, tuple[int, int]] = {
    (3, 0): (ECC_CORRECTED, ECC_VOLATILE),
    (4, 0): (ECC_UNCORRECTED, ECC_VOLATILE),
    (5, 0): (ECC_CORRECTED, ECC_AGGREGATE),
    (6, 0): (ECC_UNCORRECTED, ECC_AGGREGATE),
}
FIELD_RETIRED_SINGLE_BIT: Field = (29, 0)
FIELD_RETIRED_DOUBLE_BIT: Field = (30, 0)
FIELD_RETIRED_PENDING: Field = (31, 0)
FIELD_HELD_POWER: Field = (74, 0)
FIELD_HELD_THERMAL: Field = (75, 0)
FIELD_HELD_SYNC_BOOST: Field = (76, 0)
FIELD_HELD_BOARD_LIMIT: Field = (77, 0)
FIELD_HELD_LOW_UTILIZATION: Field = (78, 0)
FIELD_HELD_RELIABILITY: Field = (79, 0)
FIELD_MEMORY_TEMPERATURE: Field = (82, 0)
FIELD_ENERGY: Field = (83, 0)
FIELD_NVLINK_COUNT: Field = (91, 0)
FIELD_PCIE_REPLAYS: Field = (94, 0)
FIELD_C2C_COUNT: Field = (170, 0)
FIELD_POWER_AVERAGE = 185  # with a scope
FIELD_POWER_INSTANT = 186  # with a scope
FIELD_PCIE_TRANSMIT: Field = (197, 0)
FIELD_PCIE_RECEIVE: Field = (198, 0)
FIELD_RECOVERY_ACTION: Field = (230, 0)

# With a link as scope.
FIELD_NVLINK_TRANSMIT_KIB = 138
FIELD_NVLINK_RECEIVE_KIB = 139
FIELD_NVLINK_REPLAY = 161
FIELD_NVLINK_RECOVERY = 162
FIELD_NVLINK_CRC = 163
FIELD_NVLINK_STATE = 165
FIELD_NVLINK5_TRANSMIT_BYTES = 202
FIELD_NVLINK5_RECEIVE_BYTES = 204
FIELD_NVLINK5_RECOVERY = 215
FIELD_NVLINK5_SYMBOL = 221
FIELD_C2C_INTERRUPT = 231
FIELD_C2C_REPLAY = 232
FIELD_C2C_REPLAY_BACK_TO_BACK = 233

# Sums over all links, where a driver has no counters by link.
FIELD_NVLINK_CRC_FLIT_TOTAL: Field = (38, 0)
FIELD_NVLINK_CRC_DATA_TOTAL: Field = (45, 0)
FIELD_NVLINK_REPLAY_TOTAL: Field = (52, 0)
FIELD_NVLINK_RECOVERY_TOTAL: Field = (59, 0)

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

POWER_PROFILES = {
    0: "max_p",
    1: "max_q",
    2: "compute",
    3: "memory_bound",
    4: "network",
    5: "balanced",
    6: "llm_inference",
    7: "llm_training",
    8: "rbm",
    9: "dcpcie",
    10: "hmma_sparse",
    11: "hmma_dense",
    12: "sync_balanced",
    13: "hpc",
    14: "mig",
    15: "max_q_1",
    16: "network_bound",
    17: "high_throughput_inference",
    18: "medium_throughput_inference",
    19: "low_latency_inference",
    20: "training",
    21: "inference",
    22: "max_q_2",
    23: "max_q_3",
    24: "low_priority_background",
}

BRANDS = {
    1: "Quadro",
    2: "Tesla",
    3: "NVS",
    4: "GRID",
    5: "GeForce",
    6: "Titan",
    7: "NVIDIA Virtual Applications",
    8: "NVIDIA Virtual PC",
    9: "NVIDIA Virtual Compute Server",
    10: "NVIDIA RTX Virtual Workstation",
    11: "NVIDIA Cloud Gaming",
    12: "Quadro RTX",
    13: "NVIDIA RTX",
    14: "NVIDIA",
    15: "GeForce RTX",
    16: "Titan RTX",
    18: "NVIDIA RTX Virtual Game Dev",
}
