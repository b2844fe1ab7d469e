"""Cluster: how many GPUs are healthy, held and active, who wastes, and what is on fire."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import ACTIVITY, ORANGE, STATES, bad_from, good_above, good_below
from dashboards.fields import FULL, NONE, NOT_ASKED
from dashboards.links import TO_SHORT_JOB, label, link
from dashboards.panels import cells, lines, stats, worst_of
from dashboards.tables import OF_JOB, table, who
from dashboards.units import BYTES_S, COUNT, HOURS, MONEY, RATIO, SECONDS, WATT
from dashboards.variables import HAS

TOTAL = "sum(clusterwatt_gpus_expected > 0 or clusterwatt_gpus_visible)"
# Boards, as in TOTAL: a MIG instance is no GPU of its own.
HEALTHY = (
    'count(clusterwatt_gpu_up == 1 unless on (instance, uuid) clusterwatt_gpu_info{parent_uuid!=""} '
    "unless on (instance, uuid) clusterwatt_gpu_recovery_required_info)"
)
POWER_SHARE = "max by (instance) (instance:clusterwatt_gpu_power_of_limit:ratio_rate5m)"
# One choice for the whole range, so that rows neither come nor go.
QUIETEST = "bottomk(16, max by (instance) (avg_over_time(instance:clusterwatt_gpu_power_of_limit:ratio_rate5m[$__range] @ end())))"
FEEDS = (
    "max(sum by (feed) (clusterwatt_node_power_feed_ratio * on (instance) group_left () "
    "instance:clusterwatt_power_watts:rate5m) / on (feed) max by (feed) (clusterwatt_power_feed_capacity_watts))"
)
RAN = "max_over_time(clusterwatt_job_info[$__range])"
JOBS = 'clusterwatt_job_info{user=~"$user", account=~"$account"}'

gpus = stats(
    "GPUs",
    "GPUs that answer and for which the driver asks no recovery, as a share of those expected; held by a job; "
    "held and working. Normal: all healthy, nearly all held, nearly all of those active.",
    (9, 4),
    Query(TOTAL, "total", COUNT),
    Query(f"{HEALTHY} / {TOTAL}", "healthy", RATIO, good_above(0.98, 0.95)),
    Query('sum(state:clusterwatt_gpus:rate5m{state=~"active|idle"})', "held", COUNT, decimals=0),
    Query('sum(state:clusterwatt_gpus:rate5m{state="active"})', "active", COUNT, decimals=0),
    to=link("fleet"),
)
activity = stats(
    "Activity of held GPUs",
    "Mean of the activity of all GPUs that a job holds, each counted once. From counters of SM activity, of "
    "utilization where the card has no such counter. Normal for training: above 50 %.",
    (5, 4),
    Query(
        "cluster:clusterwatt_activity_of_held:ratio_rate5m",
        "activity",
        RATIO,
        good_above(0.5, 0.3),
        decimals=0,
    ),
    spark=True,
)
idle = stats(
    "Held and idle",
    "GPUs that a job holds while activity is under the idle limit, and what they cost in an hour at the price "
    "book's prices. Normal: under 2 % of the GPUs that are held.",
    (5, 4),
    Query('sum(state:clusterwatt_gpus:rate5m{state="idle"})', "GPUs", COUNT, decimals=1, colour=ORANGE),
    Query(
        'sum by (currency) (state:clusterwatt_cost_per_hour:rate1h{state="idle"})',
        "{{currency}} per hour",
        MONEY,
        colour=ORANGE,
    ),
)
power = stats(
    "Power",
    "Power of all nodes, from energy counters: the node's own meter, else the sum of what is measured. Worst "
    "feed: its load as a share of its capacity, where feeds are configured. Normal: under 80 %.",
    (5, 4),
    Query("cluster:clusterwatt_power_watts:rate5m", "now", WATT, decimals=1),
    Query(FEEDS, "worst feed", RATIO, good_below(0.8, 0.9), decimals=0),
    to=link("energy"),
)
quiet = cells(
    "Power of the GPUs, share of their limit, the 16 nodes that draw least",
    "Mean power of a node's GPUs over their power limit; one row a node. Faint: they draw little. A faint row in "
    "a busy cluster is a node that is free, idle or hung. Grey or no cell: no reading.",
    (14, 8),
    Query(f"{POWER_SHARE} and on (instance) {QUIETEST}", "{{instance}}", RATIO),
    to=link("node", instance=label("instance")),
)
states = lines(
    "GPUs over time",
    "GPUs by state: active, idle (held and doing nothing), free (no job holds them); missing: expected and not "
    "there. From the seconds that the bill is made of, so the sum is the number of GPUs.",
    (10, 8),
    Query("state:clusterwatt_gpus:rate5m", "{{state}}", COUNT),
    Query(f"{TOTAL} - sum(clusterwatt_gpus_visible)", "missing", COUNT),
    stacked=True,
    colours={f"^{state}$": colour for state, colour in STATES.items()},
)
jobs = table(
    "Jobs now",
    "One row a job, on however many nodes. Activity, and power as a share of the limit, are means of five minutes; steps per second come "
    "from its training reports. Idle: GPUs held and not used, mean of the last hour.",
    (17, 8),
    who(JOBS),
    Query("max by (job_id) (job:clusterwatt_gpus:sum)", "GPUs", COUNT),
    Query("max by (job_id) (job:clusterwatt_age:seconds)", "Age", SECONDS, decimals=0),
    Query("max by (job_id) (job:clusterwatt_activity:ratio_rate5m)", "Activity", RATIO, ACTIVITY, decimals=0),
    Query("max by (job_id) (job:clusterwatt_power_of_limit:ratio_rate5m)", "Power", RATIO, decimals=0),
    Query(
        "max by (job_id) (deriv(clusterwatt_training_step[15m]))",
        "Steps/s",
        COUNT,
        absent="no reports",
        decimals=2,
    ),
    Query(
        "max by (job_id) (job:clusterwatt_idle_gpus:rate1h)", "Idle", COUNT, good_below(0.5, 2), decimals=1
    ),
    Query(
        "time() - max by (job_id) (gpu_job:clusterwatt_held:bool * on (instance, uuid) group_left () "
        "max by (instance, uuid) (clusterwatt_gpu_last_xid_timestamp_seconds))",
        "Since XID",
        SECONDS,
        absent=NONE,
        decimals=0,
    ),
    Query(
        'count by (job_id) (ALERTS{alertstate="firing", job_id!=""})',
        "Alerts",
        COUNT,
        bad_from(),
        absent=NONE,
    ),
    keys=OF_JOB,
    links={"Name": TO_SHORT_JOB},
    sort="GPUs",
    only="GPUs",
    absent="n/a",
    widths={
        "Name": 120,
        "Job": 125,
        "GPUs": 75,
        "Age": 80,
        "Activity": 75,
        "Power": 70,
        "Idle": 60,
        "Alerts": 60,
    },
)
alerts = table(
    "Firing alerts",
    "Alerts that fire now, and how many of each. The board Fleet health has each one. Normal: none.",
    (7, 8),
    Query(
        'count by (severity, alertname) (ALERTS{alertstate="firing", severity!="none"})',
        "How many",
        COUNT,
    ),
    keys={"severity": "Severity", "alertname": "Alert"},
    links={"Alert": link("fleet")},
    sort="Severity",
    rising=True,
    absent=NONE,
    widths={"Severity": 80, "How many": 85},
)
wasted = table(
    "Most GPU hours held and not used, in the range",
    "GPU hours that a job held while the GPU was idle by the rule of the bill, and what they cost.",
    (12, 8),
    Query(
        "topk(10, sum by (job_id) (increase(clusterwatt_job_idle_gpu_seconds_total[$__range])) / 3600)",
        "Idle",
        HOURS,
        decimals=1,
    ),
    Query(
        "sum by (job_id, currency) (increase(clusterwatt_job_idle_cost_total[$__range]))",
        "Cost",
        MONEY,
        absent="no price",
    ),
    who(RAN),
    keys={**OF_JOB, "currency": "Currency"},
    links={"Name": TO_SHORT_JOB},
    sort="Idle",
    only="Idle",
    widths={"Name": 130, "Job": 130, "User": 75, "Account": 90, "Currency": 80},
)
best = table(
    "Jobs that use their GPUs best, in the range",
    "Activity over the time held, for jobs that held at least one GPU hour.",
    (12, 8),
    Query(
        "topk(10, sum by (job_id) (increase(clusterwatt_job_activity_gpu_seconds_total[$__range])) / "
        "(sum by (job_id) (increase(clusterwatt_job_gpu_seconds_total[$__range])) > 3600))",
        "Activity",
        RATIO,
        ACTIVITY,
        decimals=0,
    ),
    Query(
        "sum by (job_id) (increase(clusterwatt_job_gpu_seconds_total[$__range])) / 3600",
        "Held",
        HOURS,
        decimals=1,
    ),
    who(RAN),
    keys=OF_JOB,
    links={"Name": TO_SHORT_JOB},
    sort="Activity",
    only="Activity",
    widths={"Name": 130, "Job": 130},
)
fabric = stats(
    "Fabric and storage",
    "Bytes sent by all RDMA ports; ports that should be up and are down; the slowest answer of a mount that is "
    "probed; mounts that have not answered for two minutes. Normal: no port down, no mount hung.",
    (24, 4),
    Query("sum(rate(clusterwatt_rdma_transmit_bytes_total[$r]))", "fabric traffic", BYTES_S),
    Query(
        "count(clusterwatt_rdma_port_up == 0 and on (instance, device, port) clusterwatt_rdma_port_expected == 1) "
        "or vector(0)",
        "ports down",
        COUNT,
        bad_from(),
    ),
    Query("max(clusterwatt_filesystem_probe_duration_seconds)", "slowest mount", SECONDS, good_below(1, 30)),
    Query(
        "count(time() - clusterwatt_filesystem_last_probe_timestamp_seconds > 120) or vector(0)",
        "hung mounts",
        COUNT,
        bad_from(),
    ),
    to=link("fabric"),
)
ASKED = (
    "Empty where no agent is asked for it: `workloads.slurm_queue.enabled` or "
    f"`workloads.kubernetes_queue.enabled`, on one node that can ask the scheduler. {FULL}"
)
BY_QUEUE = "sum by (scheduler, partition)"
waiting_gpus = worst_of(
    "GPUs that waiting jobs ask for (profile full)",
    f"By partition or queue, the ten longest. More than are free, for hours: the cluster is full. {ASKED}",
    (12, 7),
    "scheduler, partition",
    f"{BY_QUEUE} (clusterwatt_scheduler_pending_gpus)",
    COUNT,
    most=10,
    legend="{{partition}} ({{scheduler}})",
    absent=NOT_ASKED,
)
waiting_jobs = worst_of(
    "Jobs that wait (profile full)",
    "By partition or queue, the ten longest. Each task of an array is a job; pods of one controller are one. "
    f"{ASKED}",
    (12, 7),
    "scheduler, partition",
    f"{BY_QUEUE} (clusterwatt_scheduler_pending_jobs)",
    COUNT,
    colour=ORANGE,
    most=10,
    legend="{{partition}} ({{scheduler}})",
    absent=NOT_ASKED,
)
BOARD = Board(
    "cluster",
    "Cluster",
    "How many GPUs are healthy, held and active, who wastes, and what is on fire.",
    HAS["cluster"],
    first=[[gpus, activity, idle, power], [quiet, states], [jobs, alerts]],
    folds=[
        ("Waste and good use in the range", [[wasted, best]]),
        ("Fabric and storage", [[fabric]]),
        ("Queue", [[waiting_gpus, waiting_jobs]]),
    ],
    annotations=[events.EVERYWHERE, events.DRIVER],
)
