"""Fleet health: what is broken, what will break, who comes back, and can the monitor be trusted."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import (
    GREEN,
    GREY,
    ORANGE,
    PINK,
    SKY,
    STATES,
    VERMILION,
    bad_from,
    good_above,
    good_below,
)
from dashboards.fields import NONE
from dashboards.links import TO_GPU, TO_JOB, TO_NODE
from dashboards.panels import bars, daily, lines, stats, worst_of
from dashboards.tables import table
from dashboards.units import BYTES, COUNT, HOURS, RATIO, SECONDS
from dashboards.variables import HAS

GPU = "max by (instance, gpu, uuid)"
NODE = "max by (instance)"
AGENTS = 'up{job="clusterwatt"}'


def _bad(expression: str, column: str, word: str = "") -> Query:
    """A column in which whatever stands there is amiss. `word`: in place of a 1."""
    return Query(expression, column, COUNT, bad_from(), texts={"1": word} if word else {})


alerts = table(
    "Firing alerts",
    "Every alert that fires now. Normal: none.",
    (11, 8),
    Query(
        'count by (severity, alertname, instance, job_id) (ALERTS{alertstate="firing", severity!="none"})',
        "How many",
        COUNT,
    ),
    keys={"severity": "Severity", "alertname": "Alert", "instance": "Node", "job_id": "Job"},
    links={"Node": TO_NODE, "Job": TO_JOB},
    sort="Severity",
    rising=True,
    absent=NONE,
    widths={"Severity": 85, "Alert": 220, "How many": 85},
)
hand = table(
    "GPUs and nodes that need a hand",
    "GPUs for which the driver asks a recovery, that it has lost, whose utilization lies; nodes short of GPUs, in "
    "maintenance, with a clock that is not disciplined, a degraded disk array or a bond with links down.",
    (13, 8),
    Query("max by (instance, gpu, uuid, action) (clusterwatt_gpu_recovery_required_info)"),
    _bad(f"{GPU} (1 - clusterwatt_gpu_up) > 0", "Lost", "yes"),
    _bad(f"{GPU} (clusterwatt_gpu_utilization_suspect) == 1", "Lies", "yes"),
    _bad(f"{NODE} ((clusterwatt_gpus_expected > 0) - clusterwatt_gpus_visible) > 0", "GPUs short"),
    Query(f"{NODE} (clusterwatt_node_maintenance) == 1", "Maintenance", COUNT, texts={"1": "yes"}),
    _bad(f"{NODE} (1 - clusterwatt_clock_synchronized) > 0", "Clock", "not set"),
    _bad(f"{NODE} (clusterwatt_md_degraded) > 0", "Disks missing"),
    _bad(f"{NODE} (clusterwatt_bond_members - clusterwatt_bond_members_up) > 0", "Links down"),
    keys={"instance": "Node", "gpu": "GPU", "uuid": "uuid", "action": "Action"},
    links={"Node": TO_NODE, "GPU": TO_GPU},
    sort="Node",
    rising=True,
    absent="-",
)
xid_days = daily(
    "XIDs by class and day",
    "How many in the day before each bar. Application: the program's own fault; the others are of driver, "
    "hardware, memory or link.",
    (8, 8),
    Query(
        # increase() would miss the first of a code, whose series begins with it. What fell began anew.
        "sum by (xid_class) (clusterwatt_gpu_xid_errors_total - "
        "(clusterwatt_gpu_xid_errors_total offset 1d or clusterwatt_gpu_xid_errors_total * 0) >= 0 "
        "or clusterwatt_gpu_xid_errors_total)",
        "{{xid_class}}",
        COUNT,
    ),
    colours={
        "application": GREY,
        "driver": SKY,
        "hardware": VERMILION,
        "memory": ORANGE,
        "link": PINK,
        "nvlink": PINK,
    },
)
offenders = table(
    "Repeat offenders, 30 days",
    "Nodes with the most XIDs in 30 days, and days with a critical alert.",
    (12, 7),
    Query(
        "topk(15, sum by (instance) (increase(clusterwatt_gpu_xid_events_total[30d]))) > 0.5",
        "XIDs",
        COUNT,
        good_below(3, 6),
        decimals=0,
    ),
    Query(
        'count_over_time((max by (instance) (max_over_time(ALERTS{alertstate="firing", severity="critical", instance!=""}[1d])))[30d:1d])',
        "Days with a critical alert",
        COUNT,
        good_below(3, 6),
        absent=NONE,
    ),
    keys={"instance": "Node"},
    links={"Node": TO_NODE},
    sort="XIDs",
    absent=NONE,
)
monitor = stats(
    "The monitor itself",
    "Agents that answer; the oldest reading of any node; the slowest scrapes; devices that the scheduler handed "
    "out and that no job is known for. Normal: all answer, nothing older than a minute (disks' health is read every five and left out), none unknown.",
    (24, 4),
    Query(
        f"count({AGENTS} == 1) / count({AGENTS})",
        "agents that answer",
        RATIO,
        good_above(0.99, 0.8),
        decimals=0,
    ),
    Query(
        'max(clusterwatt_collector_age_seconds{collector!~"grid|price|nvme"})',
        "oldest reading",
        SECONDS,
        good_below(60, 300),
        decimals=0,
    ),
    Query(
        'quantile(0.99, scrape_duration_seconds{job="clusterwatt"})',
        "slow scrapes",
        SECONDS,
        good_below(1, 5),
    ),
    Query(
        "sum(clusterwatt_scheduler_gpus_allocated) - "
        '(count(count by (instance, uuid) (clusterwatt_gpu_allocated{source=~"slurm|kubernetes"} > 0)) or vector(0))',
        "held, names missing",
        COUNT,
        bad_from(),
        absent="no scheduler",
    ),
    Query(
        "max(time() - clusterwatt_ledger_commit_timestamp_seconds)",
        "ledger behind",
        SECONDS,
        good_below(60, 300),
        decimals=0,
    ),
)
wear = table(
    "Memory wear",
    "GPUs with failed or pending remaps, with banks that have few spare rows, marked by the vendor, or with the "
    "most remapped rows.",
    (8, 8),
    _bad(f"{GPU} (clusterwatt_gpu_row_remap_failed) == 1", "Failed", "yes"),
    _bad(f"{GPU} (clusterwatt_gpu_row_remap_pending) == 1", "Pending", "yes"),
    Query(
        'sum by (instance, gpu, uuid) (clusterwatt_gpu_row_remap_banks{spare=~"none|low"}) > 0',
        "Banks with few spares",
        COUNT,
        good_below(1, 4),
    ),
    _bad(f"{GPU} (clusterwatt_gpu_sram_threshold_exceeded) == 1", "SRAM", "replace"),
    Query(
        "topk(15, sum by (instance, gpu, uuid) (clusterwatt_gpu_remapped_rows_total)) > 0",
        "Rows remapped",
        COUNT,
    ),
    keys={"instance": "Node", "gpu": "GPU", "uuid": "uuid"},
    links={"Node": TO_NODE, "GPU": TO_GPU},
    sort="Rows remapped",
    absent="-",
)
heat = bars(
    "Hours held back by heat or power brake, the worst nodes",
    "GPU hours in the range in which the hardware slowed its GPUs.",
    (8, 8),
    Query(
        'topk(10, sum by (instance) (increase(clusterwatt_gpu_throttle_seconds_total{reason=~"hw_thermal|hw_power_brake"}[$__range])) / 3600)',
        "{{instance}}",
        HOURS,
    ),
    steps=good_below(1, 10),
)
codes = table(
    "XIDs by code",
    "How many of each code since the agents began, with the severity of the table in docs/XIDS.md.",
    (12, 7),
    Query("sum by (xid, xid_class, severity) (clusterwatt_gpu_xid_errors_total)", "How many", COUNT),
    keys={"xid": "XID", "xid_class": "Class", "severity": "Severity"},
    sort="How many",
    absent=NONE,
)
drivers = bars(
    "Drivers",
    "Nodes by driver. More than one: a roll-out is under way, or was forgotten.",
    (8, 6),
    Query("topk(8, count by (driver) (clusterwatt_driver_info))", "{{driver}}", COUNT),
)
vbios = bars(
    "VBIOS",
    "GPUs by model and VBIOS.",
    (8, 6),
    Query(
        'topk(8, count by (name, vbios) (clusterwatt_gpu_info{parent_uuid=""}))', "{{name}}, {{vbios}}", COUNT
    ),
)
versions = bars(
    "Agents",
    "Nodes by version of the agent.",
    (8, 6),
    Query("topk(8, count by (version) (clusterwatt_build_info))", "{{version}}", COUNT),
)
hours = daily(
    "GPU hours by state and day",
    "In the day before each bar.",
    (16, 7),
    Query(
        "sum by (state) (increase(clusterwatt_node_gpu_state_seconds_total[1d])) / 3600", "{{state}}", HOURS
    ),
    colours={f"^{state}$": colour for state, colour in STATES.items()},
)
share = stats(
    "Use in the range",
    "Active hours over held hours; GPU hours in which an alert said that a training had stalled or hung.",
    (8, 7),
    Query(
        'sum(increase(clusterwatt_node_gpu_state_seconds_total{state="active"}[$__range])) / '
        'sum(increase(clusterwatt_node_gpu_state_seconds_total{state=~"active|idle"}[$__range]))',
        "active of held",
        RATIO,
        good_above(0.8, 0.5),
        decimals=0,
    ),
    Query(
        # Each minute of a job counts with its GPUs, once though both alerts fire.
        'sum(sum_over_time((max by (job_id) (ALERTS{alertname=~"TrainingStalled|TrainingHungInCollective", '
        'alertstate="firing"}) * on (job_id) job:clusterwatt_gpus:sum)[$__range:1m])) / 60 or vector(0)',
        "stalled",
        HOURS,
        good_below(0.1, 5),
        decimals=1,
    ),
)
trouble = table(
    "Agents in trouble",
    "Collectors that hang, series that were dropped, readings that fail, text files that are refused, "
    "configurations that were not taken. Normal: none.",
    (16, 7),
    Query(
        "max by (instance, collector) (clusterwatt_collector_stuck_seconds) > 0",
        "Hangs for",
        SECONDS,
        bad_from(),
    ),
    Query(
        "topk(10, sum by (instance, collector, reason) (increase(clusterwatt_collector_errors_total[1h]))) > 0",
        "Errors in an hour",
        COUNT,
        decimals=0,
    ),
    _bad("sum by (instance, table) (increase(clusterwatt_series_dropped_total[1h])) > 0", "Series dropped"),
    _bad(
        "sum by (instance, file) (increase(clusterwatt_textfile_errors_total[1h])) > 0", "Text files refused"
    ),
    _bad(
        "max by (instance) (1 - clusterwatt_config_last_reload_success) > 0", "Configuration refused", "yes"
    ),
    keys={"instance": "Node", "collector": "Collector", "reason": "Reason", "table": "Table", "file": "File"},
    links={"Node": TO_NODE},
    absent="-",
)
cpu = worst_of(
    "Cost of the agents: CPU, the highest",
    "CPUs that agent and driver host use. Normal: a few hundredths.",
    (8, 7),
    "instance",
    "sum by (instance) (rate(clusterwatt_agent_cpu_seconds_total[$r]))",
    RATIO,
)
memory = worst_of(
    "Cost of the agents: memory, the highest",
    "Resident memory of agent and driver host.",
    (8, 7),
    "instance",
    "sum by (instance) (clusterwatt_agent_memory_bytes)",
    BYTES,
    colour=ORANGE,
)
collectors = worst_of(
    "Time of a collection, the slowest collectors",
    "Mean of the slowest node.",
    (8, 7),
    "collector",
    "max by (collector) (rate(clusterwatt_collector_duration_seconds_sum[$r]) / (rate(clusterwatt_collector_duration_seconds_count[$r]) > 0))",
    SECONDS,
    colour=GREEN,
)
series = lines(
    "Series of the largest agent",
    "Series on one page; the limit is `limits.max_series`.",
    (8, 7),
    Query("max(clusterwatt_series)", "series", COUNT),
)

BOARD = Board(
    "fleet",
    "Fleet health",
    "What is broken, what will break, who comes back, and can the monitor be trusted.",
    HAS["fleet"],
    first=[[alerts, hand], [codes, offenders], [monitor]],
    folds=[
        ("Memory wear, heat, XIDs by day", [[wear, heat, xid_days]]),
        ("Versions", [[drivers, vbios, versions]]),
        ("GPU hours", [[hours, share]]),
        ("Agents", [[trouble, series], [cpu, memory, collectors]]),
    ],
    annotations=[events.EVERYWHERE, events.DRIVER],
    since="now-7d",
)
