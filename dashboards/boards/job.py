"""Job: is it learning, is it fast, what limits it, is one GPU slow, and what did it cost."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import (
    BLUE,
    GREEN,
    GREY,
    HELD_BACK,
    MARGIN,
    ORANGE,
    SKY,
    VERMILION,
    YELLOW,
    good_above,
    good_below,
)
from dashboards.fields import FULL, NONE
from dashboards.links import TO_GPU, TO_NODE, label, link
from dashboards.panels import cells, lines, states, stats
from dashboards.promql import worst
from dashboards.tables import table
from dashboards.units import BYTES_S, CELSIUS, COUNT, GRAMS, HERTZ, HOURS, KWH, MONEY, RATIO, SECONDS
from dashboards.variables import HAS

JOB = 'job_id="$job_id"'
RUN = f'{JOB}, run=~"$run"'
ACTIVITY = f"gpu_job:clusterwatt_activity:ratio_rate5m{{{JOB}}}"
POWER = f"gpu_job:clusterwatt_power_of_limit:ratio_rate5m{{{JOB}}}"
CLOCK = f"gpu_job:clusterwatt_sm_clock:hertz{{{JOB}}}"
NO_REPORTS = "no reports"

# One bar a run: phases exclude each other. A run that is in none is not drawn.
PHASES = {"warmup": YELLOW, "train": BLUE, "eval": GREEN, "checkpoint": ORANGE}
PHASE = "max by (run) ({})".format(
    " or ".join(
        f'({number} * (clusterwatt_training_phase{{{RUN}, phase="{name}"}} == 1))'
        for number, name in enumerate(PHASES)
    )
)

header = stats(
    "Now",
    "Nodes, whole GPUs and age of the job; age of its newest training event; model FLOP utilisation against the "
    "dense bf16 peak of all its GPUs. Normal: an event within 5 minutes.",
    (15, 4),
    Query(f"job:clusterwatt_gpus:sum{{{JOB}}}", "GPUs", COUNT),
    Query(f"count(count by (instance) (clusterwatt_gpu_allocated{{{JOB}}} > 0))", "nodes", COUNT),
    Query(f"max(job:clusterwatt_age:seconds{{{JOB}}})", "age", SECONDS, decimals=1),
    Query(
        f"time() - max(clusterwatt_training_last_event_timestamp_seconds{{{RUN}}})",
        "last event",
        SECONDS,
        good_below(300, 900),
        decimals=0,
        absent=NO_REPORTS,
    ),
    Query(f"max(run:clusterwatt_mfu:ratio{{{RUN}}})", "MFU", RATIO, decimals=0, absent="not configured"),
)
who = table(
    "Who",
    "The job's identity, the same on all its nodes.",
    (9, 4),
    Query(f"max by (name, user, account, partition, k8s_namespace) (clusterwatt_job_info{{{JOB}}})"),
    keys={
        "name": "Name",
        "user": "User",
        "account": "Account",
        "partition": "Partition",
        "k8s_namespace": "Namespace",
    },
)
loss = lines(
    "Loss",
    "Loss of training and of evaluation as the run reports it, by event files or reports. Without them this is "
    "empty: set `training.directories`, or let the run report.",
    (12, 8),
    Query(
        f"max by (run, split) (clusterwatt_training_loss{{{RUN}}})", "{{split}}, {{run}}", COUNT, decimals=2
    ),
    low=None,
    colours={"^train,": SKY, "^eval,": ORANGE},
)
use = lines(
    "GPU activity and power at the same time",
    "Activity of the job's GPUs: the tenth from below, the middle, the tenth from above; power as a share of the "
    "limit; tensor cores. A gap between the lines of activity is imbalance; low power at high activity is waiting.",
    (12, 8),
    Query(f"quantile(0.1, {ACTIVITY})", "activity, low tenth", RATIO, colour=SKY),
    Query(f"quantile(0.5, {ACTIVITY})", "activity, median", RATIO, colour=BLUE),
    Query(
        f"quantile(0.9, {ACTIVITY})", "activity, high tenth", RATIO, colour=SKY, band="activity, low tenth"
    ),
    Query(f"quantile(0.5, {POWER})", "power of limit, median", RATIO, colour=ORANGE),
    Query(f"job:clusterwatt_tensor:ratio_rate5m{{{JOB}}}", "tensor cores", RATIO, colour=GREEN),
    high=1,
)
speed = lines(
    "Tokens per second; time of a step",
    "Tokens per second as reported or derived, and the dashed line at 80 % of its own median of six hours: below "
    "it the run is slower than it was. Right axis: time of a step.",
    (8, 7),
    Query(f"max by (run) (clusterwatt_training_tokens_per_second{{{RUN}}})", "tokens/s", "short", colour=SKY),
    Query(
        f"0.8 * max by (run) (quantile_over_time(0.5, clusterwatt_training_tokens_per_second{{{RUN}}}[6h] offset 30m))",
        "80 % of its median",
        "short",
        colour=GREY,
        dashed=True,
    ),
    Query(
        f"max by (run) (clusterwatt_training_step_duration_seconds{{{RUN}}})",
        "step",
        SECONDS,
        right=True,
        colour=ORANGE,
    ),
)
phase = states(
    "Phase and trouble",
    "Which phase each run is in, and which alerts fire for the job.",
    (8, 7),
    Query(PHASE, "{{run}}"),
    Query(f'max by (alertname) (9 * (ALERTS{{alertstate="firing", {JOB}}} > bool 0))', "{{alertname}}"),
    texts={
        **{str(number): (name, colour) for number, (name, colour) in enumerate(PHASES.items())},
        "9": ("alert", VERMILION),
    },
)
problems = table(
    "Alerts of this job, firing",
    "Alerts that carry this job. Normal: none.",
    (8, 7),
    Query(f'max by (alertname, severity, instance) (ALERTS{{alertstate="firing", {JOB}}})', ""),
    keys={"alertname": "Alert", "severity": "Severity", "instance": "Node"},
    links={"Node": TO_NODE},
    absent=NONE,
)
gradient = lines(
    "Gradient norm; learning rate",
    "As the run reports them, on a logarithmic axis. A gradient norm of ten times its usual is a warning.",
    (12, 7),
    Query(
        f"max by (run) (clusterwatt_training_gradient_norm{{{RUN}}})",
        "gradient norm, {{run}}",
        COUNT,
        colour=SKY,
    ),
    Query(
        f"max by (run) (clusterwatt_training_learning_rate{{{RUN}}})",
        "learning rate, {{run}}",
        "sci",
        right=True,
        colour=ORANGE,
    ),
    log=True,
)
scalars = lines(
    "Accuracy and chosen values",
    "Left axis: accuracy by split. Right axis: the values that `training.scalars` lets through.",
    (12, 7),
    Query(
        f"max by (run, split) (clusterwatt_training_accuracy{{{RUN}}})",
        "accuracy, {{split}}",
        COUNT,
        many=True,
        colour=SKY,
    ),
    Query(
        worst(8, "run, tag", f"max by (run, tag) (clusterwatt_training_scalar{{{RUN}}})"),
        "{{tag}}",
        COUNT,
        many=True,
        right=True,
        colour=ORANGE,
    ),
)


def _from_median(each: str) -> str:
    return (
        f"avg by (instance, gpu) ({each}) / scalar(quantile(0.5, {each})) - 1 and on (instance, gpu) "
        f"bottomk(16, avg by (instance, gpu) (avg_over_time({each}[$__range] @ end())))"
    )


DISTANCE = ((VERMILION, None), (ORANGE, -0.15), (BLUE, -0.05))
TO_RANK = link("node", instance=label("instance"))
ranks = [
    cells(
        f"{title}, distance from the job's median, the 16 lowest",
        f"{about} One row a GPU. Orange: 5 % below the job's median, vermilion: 15 %. One such row is a straggler.",
        (8, 8),
        Query(_from_median(each), "{{instance}} {{gpu}}", RATIO, DISTANCE),
        to=TO_RANK,
    )
    for title, about, each in (
        ("SM clock", "Clock of the SMs.", CLOCK),
        ("Activity", "Activity of five minutes.", ACTIVITY),
        ("Power", "Power as a share of the limit.", POWER),
    )
]
slow = table(
    "Slowest GPUs by clock, with what may hold them back",
    "The five GPUs of the job with the lowest mean SM clock of ten minutes. Margin: degrees to slowdown; held "
    "back: share of time the hardware throttled for heat or power brake; retransmits are of the whole node.",
    (24, 7),
    Query(
        f"bottomk(5, max by (instance, gpu, uuid) (avg_over_time({CLOCK}[10m])))",
        "SM clock",
        HERTZ,
        decimals=2,
    ),
    Query(
        f"max by (instance, gpu, uuid) (avg_over_time({ACTIVITY}[10m]))",
        "Activity",
        RATIO,
        good_above(0.5, 0.25),
        decimals=0,
    ),
    Query(
        "max by (instance, gpu, uuid) (clusterwatt_gpu_temperature_margin_celsius $ofjob)",
        "Margin",
        CELSIUS,
        MARGIN,
    ),
    Query(
        'max by (instance, gpu, uuid) (rate(clusterwatt_gpu_throttle_seconds_total{reason=~"hw_.*|sw_thermal"}[10m])) $ofjob',
        "Held back",
        RATIO,
        HELD_BACK,
    ),
    Query("max by (instance, gpu, uuid) (clusterwatt_gpu_pcie_link_width $ofjob)", "PCIe lanes", COUNT),
    Query(
        'sum by (instance) (rate(clusterwatt_rdma_errors_total{error="retransmit"}[10m])) $onnodes',
        "Retransmits/s",
        COUNT,
        good_below(1, 100),
    ),
    keys={"instance": "Node", "gpu": "GPU", "uuid": "uuid"},
    links={"Node": TO_NODE, "GPU": TO_GPU},
    sort="SM clock",
    rising=True,
    only="SM clock",
)
memory = lines(
    "GPU memory",
    "Used memory as a share of what is usable: the fullest GPU of the job, and the median. Above 95 % the next "
    "allocation may fail.",
    (8, 7),
    Query(
        "max(clusterwatt_gpu_memory_used_bytes / (clusterwatt_gpu_memory_total_bytes - "
        "(clusterwatt_gpu_memory_reserved_bytes or clusterwatt_gpu_memory_total_bytes * 0)) $ofjob)",
        "fullest",
        RATIO,
        colour=ORANGE,
    ),
    Query(
        "quantile(0.5, clusterwatt_gpu_memory_used_bytes / clusterwatt_gpu_memory_total_bytes $ofjob)",
        "median",
        RATIO,
        colour=SKY,
    ),
    high=1,
    limits=((BLUE, None), (VERMILION, 0.95)),
)
traffic = lines(
    "NVLink, PCIe, fabric",
    "Bytes per second of all GPUs of the job over NVLink and PCIe, and of the RDMA ports of its nodes (whole "
    "nodes, other jobs on them included). Zero for minutes while training: a hang.",
    (8, 7),
    Query("sum(rate(clusterwatt_gpu_nvlink_transmit_bytes_total[$r]) $ofjob)", "NVLink sent", BYTES_S),
    Query("sum(rate(clusterwatt_gpu_pcie_receive_bytes_total[$r]) $ofjob)", "PCIe received", BYTES_S),
    Query("sum(rate(clusterwatt_rdma_transmit_bytes_total[$r]) $onnodes)", "fabric sent", BYTES_S),
)
data = lines(
    "Data path of its nodes",
    "What its nodes read from shared file systems and disks; right axis: share of CPU time that waits for "
    "storage on the worst node, and the slowest answer of a mount.",
    (8, 7),
    Query(
        "sum((rate(clusterwatt_nfs_read_bytes_total[$r]) or rate(clusterwatt_lustre_read_bytes_total[$r])) $onnodes)",
        "shares read",
        BYTES_S,
    ),
    Query("sum(rate(clusterwatt_disk_read_bytes_total[$r]) $onnodes)", "disks read", BYTES_S),
    Query(
        'max(sum by (instance) (rate(clusterwatt_cpu_seconds_total{mode="iowait"}[$r])) / on (instance) clusterwatt_cpus $onnodes)',
        "CPU waits",
        RATIO,
        right=True,
    ),
)
latency = lines(
    "Slowest mount of its nodes",
    "The longest answer of a probed mount on a node of the job. Normal: far below a second.",
    (8, 6),
    Query("max(clusterwatt_filesystem_probe_duration_seconds $onnodes)", "probe", SECONDS),
    limits=((BLUE, None), (ORANGE, 1)),
)
cost = stats(
    "Cost so far",
    "Energy, carbon and money of the whole job from the ledgers of its nodes; money per million tokens and joules "
    "per token in the range; share of the time held that was idle; GPU hours since the last checkpoint, which a "
    "crash would lose.",
    (24, 4),
    Query(
        f"sum(max_over_time(clusterwatt_job_energy_joules_total{{{JOB}}}[$__range])) / 3.6e6",
        "energy",
        KWH,
        decimals=2,
    ),
    Query(
        f"sum(max_over_time(clusterwatt_job_carbon_grams_total{{{JOB}}}[$__range]))",
        "CO2e",
        GRAMS,
        absent="no grid zone",
        decimals=1,
    ),
    Query(
        f"sum by (currency) (max_over_time(clusterwatt_job_cost_total{{{JOB}}}[$__range]))",
        "{{currency}}",
        MONEY,
        absent="no price",
    ),
    Query(
        f"sum by (currency) (increase(clusterwatt_job_cost_total{{{JOB}}}[$__range])) / "
        f"scalar(max(increase(clusterwatt_training_tokens_total{{{RUN}}}[$__range])) / 1e6)",
        "{{currency}} per million tokens",
        MONEY,
        absent=NO_REPORTS,
        decimals=4,
    ),
    Query(
        f"1 / max(run:clusterwatt_tokens_per_joule:ratio{{{RUN}}})",
        "joules per token",
        "joule",
        absent=NO_REPORTS,
        decimals=3,
    ),
    Query(
        f"sum(increase(clusterwatt_job_idle_gpu_seconds_total{{{JOB}}}[$__range])) / "
        f"sum(increase(clusterwatt_job_gpu_seconds_total{{{JOB}}}[$__range]))",
        "idle",
        RATIO,
        good_below(0.1, 0.25),
        decimals=1,
    ),
    Query(
        f"sum(job:clusterwatt_gpus:sum{{{JOB}}}) * "
        f"(time() - max(clusterwatt_training_last_checkpoint_timestamp_seconds{{{JOB}}})) / 3600",
        "since checkpoint, GPU",
        HOURS,
        absent="no checkpoint seen",
        decimals=1,
    ),
    to=link("energy"),
)
members = table(
    "Pods and containers (profile full)",
    f"Members of a job of Kubernetes, on all its nodes. {FULL}",
    (18, 5),
    Query(f"max by (instance, k8s_namespace, k8s_pod, k8s_container) (clusterwatt_job_pod_info{{{JOB}}})"),
    keys={"instance": "Node", "k8s_namespace": "Namespace", "k8s_pod": "Pod", "k8s_container": "Container"},
    links={"Node": TO_NODE},
)
nodes = table(
    "Nodes of the job",
    "Nodes on which the job holds GPUs, with how many, and the node's power.",
    (16, 6),
    Query(f"count by (instance) (clusterwatt_gpu_allocated{{{JOB}}} > 0)", "GPUs", COUNT),
    Query(f"avg by (instance) ({ACTIVITY})", "Activity", RATIO, good_above(0.5, 0.25), decimals=0),
    Query(
        "max by (instance) (instance:clusterwatt_power_watts:rate5m $onnodes)",
        "Power of the node",
        "watt",
        decimals=0,
    ),
    keys={"instance": "Node"},
    links={"Node": TO_NODE},
    sort="Activity",
    rising=True,
)
signal = stats(
    "GPUs by signal",
    "What activity is read from: SM activity (GPM), or utilization on cards without it.",
    (6, 5),
    Query(f"count by (signal) ({ACTIVITY})", "{{signal}}", COUNT),
)

BOARD = Board(
    "job",
    "Job",
    "Is it learning, is it fast, what limits it, is one GPU slow, and what did it cost.",
    HAS["job"],
    first=[[header, who], [loss, use], [speed, phase, problems]],
    folds=[
        ("Energy, carbon, money", [[cost]]),
        ("Gradient, accuracy", [[gradient, scalars]]),
        ("Is one GPU slow?", [ranks, [slow]]),
        ("Memory, links, data", [[memory, traffic, data], [latency, nodes]]),
        ("Signal, members", [[signal, members]]),
    ],
    annotations=[events.JOB_START, events.XID_OF_JOB, events.ALERTS_OF_JOB, events.PHASES],
)
