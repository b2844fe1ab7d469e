"""Storage and data loading: will it fill, does it answer, do GPUs wait for data."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import ACTIVITY, BLUE, ORANGE, SKY, VERMILION, good_above, good_below
from dashboards.fields import FULL, NONE
from dashboards.links import TO_JOB, TO_NODE, TO_SHORT_JOB
from dashboards.panels import lines, worst_of
from dashboards.promql import with_short_job
from dashboards.tables import table
from dashboards.units import BYTES_S, COUNT, PER_S, RATIO, SECONDS
from dashboards.variables import HAS

NODES = 'instance=~"$instance"'
SHARED = "nfs.*|lustre|gpfs|wekafs|beegfs|ceph|fuse.*"
FALLING = "-(deriv(clusterwatt_filesystem_available_bytes[6h]) < 0)"
WAIT = 'sum by (instance) (rate(clusterwatt_cpu_seconds_total{mode="iowait"}[5m])) / on (instance) clusterwatt_cpus'

space = table(
    "File systems by what is left",
    "A shared mount appears on every node: the lowest of all is shown. Full in: by the course of six "
    "hours; none: it is not filling.",
    (16, 8),
    Query(
        f"bottomk(20, min by (mountpoint, fstype) (clusterwatt_filesystem_available_bytes{{{NODES}}} / clusterwatt_filesystem_size_bytes "
        "and on (instance, mountpoint) clusterwatt_filesystem_readonly == 0))",
        "Free",
        RATIO,
        good_above(0.1, 0.05),
        decimals=0,
    ),
    Query(
        f"min by (mountpoint, fstype) (clusterwatt_filesystem_files_free{{{NODES}}} / (clusterwatt_filesystem_files > 0))",
        "File entries free",
        RATIO,
        good_above(0.1, 0.03),
        decimals=0,
    ),
    Query(
        f"min by (mountpoint, fstype) (clusterwatt_filesystem_available_bytes{{{NODES}}} / {FALLING})",
        "Full in",
        SECONDS,
        good_above(86400, 14400),
        absent=NONE,
        decimals=1,
    ),
    Query(
        f"count by (mountpoint, fstype) (clusterwatt_filesystem_size_bytes{{{NODES}}})",
        "Nodes",
        COUNT,
    ),
    keys={"mountpoint": "Mount", "fstype": "Type"},
    sort="Free",
    rising=True,
    only="Free",
)
blocked = table(
    "Blocked processes",
    "Nodes with processes that wait for a device or a file server, and since when the oldest does. Above a "
    "minute: storage hangs. Normal: none.",
    (8, 8),
    Query(
        f"topk(10, max by (instance) (clusterwatt_blocked_process_age_seconds{{{NODES}}})) > 0",
        "Oldest",
        SECONDS,
        good_below(60, 300),
        decimals=0,
    ),
    Query(f"max by (instance) (clusterwatt_blocked_processes{{{NODES}}}) > 0", "How many", COUNT),
    keys={"instance": "Node"},
    links={"Node": TO_NODE},
    sort="Oldest",
    absent=NONE,
)
latency = worst_of(
    "Mounts: time to answer, on the slowest node",
    "How long a mount takes to answer a probe, on the node where it is slowest. Normal: milliseconds.",
    (12, 6),
    "mountpoint",
    f"max by (mountpoint) (clusterwatt_filesystem_probe_duration_seconds{{{NODES}}})",
    SECONDS,
)
answered = worst_of(
    "Mounts: since the last answer, on the slowest node",
    "Grows while a mount hangs. Vermilion line: two minutes.",
    (12, 6),
    "mountpoint",
    f"time() - min by (mountpoint) (clusterwatt_filesystem_last_probe_timestamp_seconds{{{NODES}}})",
    SECONDS,
    colour=ORANGE,
    limits=((BLUE, None), (VERMILION, 120)),
)
starved = table(
    "Jobs that may wait for data: low activity, high CPU wait",
    "Activity of the job's GPUs beside the share of CPU time that waits for storage on the worst of its nodes. "
    "Low activity with high wait: look at the data loader.",
    (12, 6),
    Query(
        "max by (job_id) (job:clusterwatt_activity:ratio_rate5m)",
        "Activity",
        RATIO,
        ACTIVITY,
        decimals=0,
    ),
    Query(
        f"max by (job_id) (gpu_job:clusterwatt_held:bool{{{NODES}}} * on (instance) group_left () ({WAIT}))",
        "CPU wait",
        RATIO,
        good_below(0.1, 0.2),
        decimals=1,
    ),
    Query(f"max by (job_id, short, name) ({with_short_job('clusterwatt_job_info')})"),
    keys={"name": "Name", "short": "Job", "job_id": "job_id"},
    links={"Name": TO_SHORT_JOB},
    sort="CPU wait",
    only="Activity",
)
mounts = lines(
    "Read and written by shared mount",
    "Bytes per second of NFS and Lustre clients over all nodes.",
    (12, 6),
    Query(
        f"sum by (mountpoint) (rate(clusterwatt_nfs_read_bytes_total{{{NODES}}}[$r]) or rate(clusterwatt_lustre_read_bytes_total{{{NODES}}}[$r]))",
        "{{mountpoint}} read",
        BYTES_S,
        many=True,
        colour=SKY,
    ),
    Query(
        f"sum by (mountpoint) (rate(clusterwatt_nfs_write_bytes_total{{{NODES}}}[$r]) or rate(clusterwatt_lustre_write_bytes_total{{{NODES}}}[$r]))",
        "{{mountpoint}} written",
        BYTES_S,
        many=True,
        colour=ORANGE,
    ),
)
operations = lines(
    "NFS: time of an operation",
    "Mean time of an operation, queue included. Orange line: 0.1 s.",
    (12, 7),
    Query(
        f"sum by (mountpoint, operation) (rate(clusterwatt_nfs_operation_seconds_total{{{NODES}}}[$r])) / "
        f"(sum by (mountpoint, operation) (rate(clusterwatt_nfs_operations_total{{{NODES}}}[$r])) > 0)",
        "{{mountpoint}} {{operation}}",
        SECONDS,
        many=True,
        colour=SKY,
    ),
    limits=((BLUE, None), (ORANGE, 0.1)),
)
retransmissions = lines(
    "NFS: retransmissions; time in the queue",
    "Requests sent again per second; right axis: seconds that requests wait in the client, per second.",
    (12, 7),
    Query(
        f"sum by (mountpoint) (rate(clusterwatt_nfs_retransmissions_total{{{NODES}}}[$r]))",
        "{{mountpoint}} sent again",
        PER_S,
        many=True,
        colour=VERMILION,
    ),
    Query(
        f"sum by (mountpoint) (rate(clusterwatt_nfs_queue_seconds_total{{{NODES}}}[$r]))",
        "{{mountpoint}} queue",
        COUNT,
        many=True,
        colour=SKY,
        right=True,
    ),
)
write_time = worst_of(
    "Local disks: time of a write, the slowest",
    "Mean time of a write while there are writes. Orange line: 0.1 s.",
    (8, 7),
    "instance, device",
    f"rate(clusterwatt_disk_write_seconds_total{{{NODES}}}[$r]) / (rate(clusterwatt_disk_writes_completed_total[$r]) > 0)",
    SECONDS,
    limits=((BLUE, None), (ORANGE, 0.1)),
)
depth = worst_of(
    "Local disks: depth of the queue, the deepest",
    "Requests that wait or are served, mean. Orange line: 10.",
    (8, 7),
    "instance, device",
    f"rate(clusterwatt_disk_queue_seconds_total{{{NODES}}}[$r])",
    COUNT,
    limits=((BLUE, None), (ORANGE, 10)),
)
wear = table(
    "Wear of disks (profile full)",
    f"Share of its written life that a disk has used up, by its own account. {FULL}",
    (8, 7),
    Query(
        f"topk(10, max by (instance, device) (clusterwatt_disk_wear_ratio{{{NODES}}}))",
        "Wear",
        RATIO,
        good_below(0.8, 0.95),
        decimals=0,
    ),
    keys={"instance": "Node", "device": "Disk"},
    links={"Node": TO_NODE},
    sort="Wear",
)
checkpoints = lines(
    "GPUs that wait in checkpoints; what is written meanwhile",
    "GPUs of jobs whose run is in the phase checkpoint; right axis: bytes written to shared mounts.",
    (12, 7),
    Query(
        'sum(job:clusterwatt_gpus:sum and on (job_id) clusterwatt_training_phase{phase="checkpoint"} == 1) or vector(0)',
        "GPUs in a checkpoint",
        COUNT,
        colour=ORANGE,
    ),
    Query("sum(rate(clusterwatt_nfs_write_bytes_total[$r]))", "written", BYTES_S, right=True, colour=SKY),
)
in_checkpoint = table(
    "Runs in a checkpoint now",
    "For how long already.",
    (12, 7),
    Query(
        "max by (job_id, run) (time() - clusterwatt_training_phase_start_timestamp_seconds and on (job_id, run) "
        'clusterwatt_training_phase{phase="checkpoint"} == 1)',
        "For",
        SECONDS,
        decimals=0,
    ),
    keys={"job_id": "Job", "run": "Run"},
    links={"Job": TO_JOB},
    absent=NONE,
)

BOARD = Board(
    "storage",
    "Storage",
    "Will it fill, does it answer, do GPUs wait for data.",
    HAS["storage"],
    first=[[space, blocked], [latency, answered], [starved, mounts]],
    folds=[
        ("Shared mounts", [[operations, retransmissions]]),
        ("Local disks", [[write_time, depth, wear]]),
        ("Checkpoints", [[checkpoints, in_checkpoint]]),
    ],
    annotations=[events.MAINTENANCE],
)
