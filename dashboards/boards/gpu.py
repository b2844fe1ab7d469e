"""GPU: what the card does, what holds it back, and how worn its memory is."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import (
    BLUE,
    GREEN,
    GREY,
    MARGIN,
    NOTHING,
    ORANGE,
    PINK,
    SKY,
    STATES,
    VERMILION,
    YELLOW,
    bad_from,
    good_above,
)
from dashboards.fields import FULL
from dashboards.links import TO_JOB, TO_NODE, link
from dashboards.panels import bars, lines, states, stats
from dashboards.tables import newest_first, table
from dashboards.units import BYTES, BYTES_S, CELSIUS, COUNT, HERTZ, HOURS, KWH, MONEY, RATIO, WATT
from dashboards.variables import HAS

GPU = 'uuid="$uuid"'
REASONS = {
    "hw_thermal": VERMILION,
    "hw_power_brake": PINK,
    "hw_slowdown": YELLOW,
    "sw_thermal": ORANGE,
    "sw_power_cap": SKY,
}

# The card's own average where it has one: a single instant says little, and many make a wall.
READING = f'clusterwatt_gpu_power_watts{{{GPU}, scope="gpu"}}'

who = table(
    "The card and who holds it",
    "Its place, model and holder. An empty job: nobody holds it.",
    (12, 4),
    Query(f"max by (uuid, instance, gpu, name) (clusterwatt_gpu_info{{{GPU}}})"),
    Query(f"max by (uuid, job_id, user) (clusterwatt_gpu_allocated{{{GPU}}} > 0)"),
    Query(f"max by (uuid, signal) (clusterwatt_gpu_activity_signal{{{GPU}}})"),
    keys={
        "instance": "Node",
        "gpu": "GPU",
        "name": "Model",
        "job_id": "Job",
        "user": "User",
        "signal": "Signal",
        "uuid": "uuid",
    },
    links={"Node": TO_NODE, "Job": TO_JOB},
    absent="nobody",
    widths={"GPU": 55, "Signal": 80, "User": 80, "Model": 200},
)
state = stats(
    "State",
    "What the driver asks to be done with the card; whether its utilization can be believed; its P-state. "
    "Normal: no action.",
    (12, 4),
    Query(
        f'count(clusterwatt_gpu_recovery_action{{{GPU}, action!="none"}} == 1) or '
        f"0 * count(clusterwatt_gpu_recovery_action{{{GPU}}})",
        "recovery",
        COUNT,
        bad_from(),
        texts={"0": "none", "1": "asked for"},
    ),
    Query(
        f"max(clusterwatt_gpu_up{{{GPU}}})",
        "driver",
        COUNT,
        good_above(1, 1),
        texts={"1": "answers", "0": "lost"},
    ),
    Query(
        f"max(clusterwatt_gpu_utilization_suspect{{{GPU}}})",
        "utilization",
        COUNT,
        bad_from(),
        texts={"0": "plausible", "1": "lies"},
        absent="not known yet",
    ),
    Query(f"max(clusterwatt_gpu_performance_state{{{GPU}}})", "P-state", COUNT),
    Query(f"min(clusterwatt_gpu_temperature_margin_celsius{{{GPU}}})", "margin", CELSIUS, MARGIN),
    to=link("fleet"),
)
activity = lines(
    "Activity",
    "Share of time: activity is what the bill counts; utilization only says that a kernel ran; occupancy, tensor "
    "cores and memory are from GPM (Hopper and later). High utilization with low activity: the GPU waits.",
    (12, 8),
    Query(f"rate(clusterwatt_gpu_activity_seconds_total{{{GPU}}}[$r])", "activity", RATIO, colour=SKY),
    Query(
        f"rate(clusterwatt_gpu_busy_seconds_total{{{GPU}}}[$r])",
        "utilization (a kernel ran)",
        RATIO,
        colour=GREY,
        dashed=True,
    ),
    Query(f"rate(clusterwatt_gpu_sm_occupancy_seconds_total{{{GPU}}}[$r])", "occupancy", RATIO, colour=PINK),
    Query(
        f"rate(clusterwatt_gpu_tensor_active_seconds_total{{{GPU}}}[$r])", "tensor cores", RATIO, colour=GREEN
    ),
    Query(f"rate(clusterwatt_gpu_dram_active_seconds_total{{{GPU}}}[$r])", "memory", RATIO, colour=ORANGE),
    high=1,
)
power = lines(
    "Power",
    "Mean from the energy counter; the driver's reading, its average of a second where the card has one; the limit in force.",
    (12, 8),
    Query(
        f'sum by (method) (rate(clusterwatt_gpu_energy_joules_total{{{GPU}, scope="gpu"}}[$r]))',
        "mean, energy {{method}}",
        WATT,
        colour=SKY,
    ),
    Query(
        f'max by (kind) ({READING[:-1]}, kind="average"}}) or (max by (kind) ({READING}) unless on () {READING[:-1]}, kind="average"}})',
        "reading, {{kind}}",
        WATT,
        many=True,
        colour=ORANGE,
    ),
    Query(
        f'max(clusterwatt_gpu_power_limit_watts{{{GPU}, limit="enforced"}})',
        "limit",
        WATT,
        colour=GREY,
        dashed=True,
    ),
)
memory = lines(
    "Memory",
    "Used, reserved by the driver, and free, stacked to the whole.",
    (8, 7),
    Query(f"clusterwatt_gpu_memory_used_bytes{{{GPU}}}", "used", BYTES, colour=SKY),
    Query(f"clusterwatt_gpu_memory_reserved_bytes{{{GPU}}}", "reserved", BYTES, colour=ORANGE),
    Query(f"clusterwatt_gpu_memory_free_bytes{{{GPU}}}", "free", BYTES, colour=GREY),
    stacked=True,
)
temperature = lines(
    "Temperature",
    "Core and memory, and where the card states it the limit at which it slows down. The margin is in State.",
    (8, 7),
    Query(f"max by (sensor) (clusterwatt_gpu_temperature_celsius{{{GPU}}})", "{{sensor}}", CELSIUS),
    Query(
        f'max by (sensor) (clusterwatt_gpu_temperature_limit_celsius{{{GPU}, limit="slowdown"}})',
        "{{sensor}}, slows down",
        CELSIUS,
        colour=GREY,
        dashed=True,
    ),
    Query(f"min(clusterwatt_gpu_temperature_margin_celsius{{{GPU}}})", "margin", CELSIUS, colour=GREEN),
    colours={"^core$": SKY, "^memory$": ORANGE},
)
throttle = lines(
    "Share of time held back, by reason",
    "Heat (hw_thermal) and power brake are faults; sw_power_cap is normal at full load. Several may hold at once: hw_slowdown stands beside its cause.",
    (8, 7),
    Query(
        f'sum by (reason) (rate(clusterwatt_gpu_throttle_seconds_total{{{GPU}, reason=~"hw_.*|sw_.*"}}[$r]))',
        "{{reason}}",
        RATIO,
    ),
    high=0.1,
    colours={f"^{reason}$": colour for reason, colour in REASONS.items()},
)
reasons = states(
    "Held back, when",
    "Reasons for which the card was held back for more than a twentieth of the time.",
    (8, 7),
    Query(
        f"sum by (reason) (rate(clusterwatt_gpu_throttle_seconds_total{{{GPU}}}[$r])) > bool 0.05",
        "{{reason}}",
    ),
    texts={"0": ("no", NOTHING), "1": ("held back", ORANGE)},
)
pipes = lines(
    "Pipes (profile full)",
    f"Share of time that each arithmetic pipe works, from GPM. {FULL}",
    (8, 7),
    Query(
        f"max by (pipe) (rate(clusterwatt_gpu_pipe_active_seconds_total{{{GPU}}}[$r]))",
        "{{pipe}}",
        RATIO,
        many=True,
        colour=SKY,
    ),
)
clocks = lines(
    "Clocks",
    "Clocks now, and the highest the card has (dashed).",
    (8, 7),
    Query(f"max by (domain) (clusterwatt_gpu_clock_hertz{{{GPU}}})", "{{domain}}", HERTZ),
    Query(
        f'max by (domain) (clusterwatt_gpu_clock_max_hertz{{{GPU}, domain="sm"}})',
        "{{domain}}, highest",
        HERTZ,
        colour=GREY,
        dashed=True,
    ),
    colours={"^sm$": SKY, "^memory$": ORANGE, "^video$": GREEN, "^graphics$": PINK},
)
pcie = lines(
    "PCIe",
    "Bytes per second over PCIe; right axis: replays, which are errors that were repaired.",
    (8, 7),
    Query(f"rate(clusterwatt_gpu_pcie_receive_bytes_total{{{GPU}}}[$r])", "received", BYTES_S),
    Query(f"rate(clusterwatt_gpu_pcie_transmit_bytes_total{{{GPU}}}[$r])", "sent", BYTES_S),
    Query(
        f"increase(clusterwatt_gpu_pcie_replays_total{{{GPU}}}[$r])",
        "replays",
        COUNT,
        right=True,
        colour=VERMILION,
    ),
)
lanes = stats(
    "PCIe lanes in use, of the widest",
    "The link's width now over the widest that card and slot have. Below 1: badly seated, or a slot with fewer.",
    (8, 7),
    Query(
        f"max(clusterwatt_gpu_pcie_link_width{{{GPU}}} / clusterwatt_gpu_pcie_link_width_max)",
        "lanes",
        RATIO,
        good_above(1, 0.5),
    ),
    Query(
        f"max(clusterwatt_gpu_bar1_used_bytes{{{GPU}}} / clusterwatt_gpu_bar1_total_bytes)",
        "BAR1 used",
        RATIO,
        decimals=0,
    ),
)
nvlink = lines(
    "NVLink",
    "Bytes per second sent and received over all links.",
    (8, 7),
    Query(f"rate(clusterwatt_gpu_nvlink_transmit_bytes_total{{{GPU}}}[$r])", "sent", BYTES_S),
    Query(f"rate(clusterwatt_gpu_nvlink_receive_bytes_total{{{GPU}}}[$r])", "received", BYTES_S),
)
nvlinks = states(
    "NVLinks, up and down",
    "Each link of the card.",
    (12, 10),
    Query(f"max by (link) (clusterwatt_gpu_nvlink_up{{{GPU}}})", "{{link}}"),
    texts={"1": ("up", BLUE), "0": ("down", VERMILION)},
)
nvlink_errors = lines(
    "NVLink errors in an hour",
    "By kind. More than one recovery or a hundred replays in an hour: look at the link.",
    (12, 10),
    Query(
        f"max by (error) (increase(clusterwatt_gpu_nvlink_errors_total{{{GPU}}}[1h]))",
        "{{error}}",
        COUNT,
        many=True,
        colour=ORANGE,
    ),
    high=1,
)
ecc = table(
    "Memory errors",
    "ECC errors by kind, window and place. Any uncorrected one matters; corrected ones in numbers are a hint.",
    (12, 8),
    Query(f"max by (type, window, location) (clusterwatt_gpu_ecc_errors_total{{{GPU}}})", "Errors", COUNT),
    keys={"type": "Type", "window": "Since", "location": "Where"},
    sort="Errors",
)
rows = stats(
    "Row remapping",
    "Pending: a reset is needed to remap. Failed: no spare row is left, replace the card. Banks without spare "
    "rows; the vendor's mark for replacement.",
    (14, 5),
    Query(
        f"max(clusterwatt_gpu_row_remap_pending{{{GPU}}})",
        "pending",
        COUNT,
        bad_from(),
        texts={"0": "no", "1": "yes"},
    ),
    Query(
        f"max(clusterwatt_gpu_row_remap_failed{{{GPU}}})",
        "failed",
        COUNT,
        bad_from(),
        texts={"0": "no", "1": "yes"},
    ),
    Query(f"sum(clusterwatt_gpu_remapped_rows_total{{{GPU}}})", "rows remapped", COUNT),
    Query(
        f'sum(clusterwatt_gpu_row_remap_banks{{{GPU}, spare="none"}})',
        "banks without spare",
        COUNT,
        bad_from(),
    ),
    Query(
        f"max(clusterwatt_gpu_sram_threshold_exceeded{{{GPU}}})",
        "replace (SRAM)",
        COUNT,
        bad_from(),
        texts={"0": "no", "1": "yes"},
    ),
)
banks = bars(
    "Banks by spare rows left",
    "How many memory banks have all, many, some, few or no spare rows.",
    (10, 5),
    Query(f"max by (spare) (clusterwatt_gpu_row_remap_banks{{{GPU}}})", "{{spare}}", COUNT),
)
xids = newest_first(
    "XID history",
    "Each code once, with the time of the newest and how many there were since the agent began.",
    (12, 8),
    f"max by (xid, xid_class, severity) (clusterwatt_gpu_last_xid_timestamp_seconds{{{GPU}}})",
    Query(
        f"max by (xid, xid_class, severity) (clusterwatt_gpu_xid_errors_total{{{GPU}}})", "How many", COUNT
    ),
    keys={"xid": "XID", "xid_class": "Class", "severity": "Severity"},
)
month_heat = lines(
    "Hottest of each day, 30 days",
    "Highest core temperature of each day; its own range, whatever the board's.",
    (8, 7),
    Query(f'max_over_time(clusterwatt_gpu_temperature_celsius{{{GPU}, sensor="core"}}[1d])', "core", CELSIUS),
    every="1d",
    bars=True,
    time_from="30d",
)
month_ecc = lines(
    "Corrected errors of each day, 30 days",
    "By place; its own range, whatever the board's.",
    (8, 7),
    Query(
        f'sum by (location) (increase(clusterwatt_gpu_ecc_errors_total{{{GPU}, type="corrected", window="volatile"}}[1d]))',
        "{{location}}",
        COUNT,
        many=True,
        colour=ORANGE,
    ),
    high=1,
    every="1d",
    bars=True,
    time_from="30d",
)
month_held = lines(
    "Hours held back by heat each day, 30 days",
    "By hardware, for heat; its own range, whatever the board's.",
    (8, 7),
    Query(
        f'increase(clusterwatt_gpu_throttle_seconds_total{{{GPU}, reason="hw_thermal"}}[1d]) / 3600',
        "held back",
        HOURS,
    ),
    high=1,
    every="1d",
    bars=True,
    time_from="30d",
)
time_spent = bars(
    "Where its time went",
    "GPU hours in the range: active, held and idle, free.",
    (8, 6),
    Query(
        f"sum by (state) (increase(clusterwatt_gpu_state_seconds_total{{{GPU}}}[$__range])) / 3600",
        "{{state}}",
        HOURS,
    ),
    colours=STATES,
)
energy_spent = bars(
    "Where its energy went",
    "Energy in the range by state.",
    (8, 6),
    Query(
        f"sum by (state) (increase(clusterwatt_gpu_state_energy_joules_total{{{GPU}}}[$__range])) / 3.6e6",
        "{{state}}",
        KWH,
    ),
    colours=STATES,
)
money_spent = bars(
    "Where its money went",
    "Money in the range by state, at the price book's prices.",
    (8, 6),
    Query(
        f"sum by (state, currency) (increase(clusterwatt_gpu_state_cost_total{{{GPU}}}[$__range]))",
        "{{state}}, {{currency}}",
        MONEY,
    ),
    colours=STATES,
)

BOARD = Board(
    "gpu",
    "GPU",
    "What the card does, what holds it back, and how worn its memory is.",
    HAS["gpu"],
    first=[[who, state], [activity, power], [memory, temperature, throttle]],
    folds=[
        ("Held back, clocks, pipes", [[reasons, clocks, pipes]]),
        ("PCIe and NVLink", [[pcie, nvlink, lanes], [nvlinks, nvlink_errors]]),
        ("Memory health, XIDs", [[rows, banks], [ecc, xids]]),
        ("30 days", [[month_heat, month_ecc, month_held]]),
        ("Time, energy, money", [[time_spent, energy_spent, money_spent]]),
    ],
    annotations=[events.XID_OF_GPU],
)
