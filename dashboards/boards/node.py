"""Node: is it fit, which jobs are on it, and what limits them."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import (
    ACTIVITY,
    BLUE,
    BY_GPU,
    GREEN,
    HELD_BACK,
    MARGIN,
    ORANGE,
    SKY,
    VERMILION,
    bad_from,
    good_below,
)
from dashboards.fields import FULL
from dashboards.links import TO_JOB, cell, link
from dashboards.panels import lines, stats, worst_of
from dashboards.tables import newest_first, table
from dashboards.units import BYTES, BYTES_S, CELSIUS, COUNT, HERTZ, RATIO, SECONDS, WATT
from dashboards.variables import HAS

NODE = 'instance="$instance"'
GPU = "max by (gpu, uuid)"
TO_GPU = link("gpu", instance="${instance}", uuid=cell("uuid"))

health = stats(
    "Health",
    "GPUs that are expected and not there; GPUs for which the driver asks a recovery; ports down that should be "
    "up; the fullest file system; the oldest reading; how long the node is up; how far its clock is off.",
    (24, 4),
    Query(
        f"max((clusterwatt_gpus_expected{{{NODE}}} > 0) - clusterwatt_gpus_visible{{{NODE}}})",
        "GPUs short",
        COUNT,
        bad_from(),
        absent="none expected",
    ),
    Query(
        f"count(clusterwatt_gpu_recovery_required_info{{{NODE}}}) or vector(0)",
        "need recovery",
        COUNT,
        bad_from(),
    ),
    Query(
        f"count(clusterwatt_rdma_port_up{{{NODE}}} == 0 and on (instance, device, port) "
        "clusterwatt_rdma_port_expected == 1) or vector(0)",
        "ports down",
        COUNT,
        bad_from(),
    ),
    Query(
        f"max(1 - clusterwatt_filesystem_available_bytes{{{NODE}}} / clusterwatt_filesystem_size_bytes "
        "and on (instance, mountpoint) clusterwatt_filesystem_readonly == 0)",
        "fullest disk",
        RATIO,
        good_below(0.9, 0.95),
        decimals=0,
    ),
    Query(
        f'max(clusterwatt_collector_age_seconds{{{NODE}, collector!~"grid|price|nvme"}})',
        "oldest reading",
        SECONDS,
        good_below(60, 300),
        decimals=0,
    ),
    Query(f"max(time() - clusterwatt_boot_timestamp_seconds{{{NODE}}})", "up", SECONDS, decimals=1),
    Query(
        f"max(abs(clusterwatt_clock_offset_seconds{{{NODE}}}))",
        "clock off by",
        SECONDS,
        good_below(0.01, 0.1),
    ),
)
gpus = table(
    "GPUs",
    "One row a GPU. Activity, tensor cores, power and time held back are means of five minutes. Margin: degrees "
    "to hardware slowdown. ECC: uncorrected errors since the last reset; XIDs of a day. n/a: the card does not offer it.",
    (24, 10),
    Query(f"max by (gpu, uuid, job_id, user) (clusterwatt_gpu_allocated{{{NODE}}} > 0)"),
    Query(
        f"{GPU} (rate(clusterwatt_gpu_activity_seconds_total{{{NODE}}}[5m]))",
        "Activity",
        RATIO,
        ACTIVITY,
        decimals=0,
    ),
    Query(
        f"{GPU} (rate(clusterwatt_gpu_tensor_active_seconds_total{{{NODE}}}[5m]))",
        "Tensor",
        RATIO,
        decimals=0,
    ),
    Query(
        f"{GPU} (clusterwatt_gpu_memory_used_bytes{{{NODE}}} / clusterwatt_gpu_memory_total_bytes)",
        "Memory",
        RATIO,
        decimals=0,
    ),
    Query(f"{GPU} (gpu:clusterwatt_power_watts:rate5m{{{NODE}}})", "Power", WATT, decimals=0),
    Query(
        f"{GPU} (gpu:clusterwatt_power_watts:rate5m{{{NODE}}} / on (instance, uuid) "
        'clusterwatt_gpu_power_limit_watts{limit="enforced"})',
        "Of limit",
        RATIO,
        decimals=0,
    ),
    Query(
        f'{GPU} (clusterwatt_gpu_temperature_celsius{{{NODE}, sensor="core"}})', "Core", CELSIUS, decimals=0
    ),
    Query(
        f"{GPU} (clusterwatt_gpu_temperature_margin_celsius{{{NODE}}})",
        "Margin",
        CELSIUS,
        MARGIN,
        decimals=0,
    ),
    Query(f'{GPU} (clusterwatt_gpu_clock_hertz{{{NODE}, domain="sm"}})', "Clock", HERTZ, decimals=2),
    Query(
        f'max by (gpu, uuid) (rate(clusterwatt_gpu_throttle_seconds_total{{{NODE}, reason=~"hw_.*|sw_thermal"}}[5m]))',
        "Held back",
        RATIO,
        HELD_BACK,
        decimals=0,
    ),
    Query(
        f'sum by (gpu, uuid) (clusterwatt_gpu_ecc_errors_total{{{NODE}, type="uncorrected", window="volatile"}})',
        "ECC",
        COUNT,
        bad_from(),
    ),
    Query(
        f"{GPU} (clusterwatt_gpu_row_remap_pending{{{NODE}}} + 2 * clusterwatt_gpu_row_remap_failed)",
        "Remap",
        COUNT,
        bad_from(),
        texts={"0": "no", "1": "pending", "2": "failed", "3": "failed"},
    ),
    Query(f"{GPU} (clusterwatt_gpu_pcie_link_width{{{NODE}}})", "Lanes", COUNT),
    Query(f"sum by (gpu, uuid) (clusterwatt_gpu_nvlink_up{{{NODE}}})", "NVLinks", COUNT),
    Query(
        f"{GPU} (increase(clusterwatt_gpu_xid_events_total{{{NODE}}}[1d]))",
        "XIDs",
        COUNT,
        bad_from(0.5),
        decimals=0,
    ),
    Query(
        f"{GPU} (clusterwatt_gpu_utilization_suspect{{{NODE}}})",
        "Utilization",
        COUNT,
        bad_from(),
        texts={"0": "plausible", "1": "lies"},
    ),
    keys={"gpu": "GPU", "uuid": "uuid", "job_id": "Job", "user": "User"},
    links={"GPU": TO_GPU, "Job": TO_JOB},
    sort="GPU",
    rising=True,
    order=("GPU", "uuid", "Job", "User"),
    absent="n/a",
    widths={"GPU": 50, "Job": 115, "Clock": 100},
)
owners = table(
    "Who holds its GPUs",
    "Jobs on the node, with the GPUs that they hold (a share of a shared GPU counts as such).",
    (8, 6),
    Query(f"sum by (job_id, user) (clusterwatt_gpu_allocated{{{NODE}}})", "GPUs", COUNT),
    keys={"job_id": "Job", "user": "User"},
    links={"Job": TO_JOB},
    sort="GPUs",
)
activity = lines(
    "Activity by GPU",
    "Share of time the GPU's SMs work, from the counter that the bill is made of.",
    (8, 6),
    Query(
        f"rate(clusterwatt_gpu_activity_seconds_total{{{NODE}}}[$r])", "{{gpu}}", RATIO, many=True, colour=SKY
    ),
    high=1,
    colours=BY_GPU,
)
power = lines(
    "Power by GPU",
    "Mean power from the energy counter of each GPU.",
    (8, 6),
    Query(
        f'sum by (gpu) (rate(clusterwatt_gpu_energy_joules_total{{{NODE}, scope="gpu"}}[$r]))',
        "{{gpu}}",
        WATT,
        many=True,
        colour=ORANGE,
    ),
    colours=BY_GPU,
)
held = lines(
    "Who held its GPUs over time",
    "GPUs held, by job, stacked. A job that comes or goes is a step.",
    (12, 7),
    Query(
        f"sum by (job_id) (clusterwatt_gpu_allocated{{{NODE}}})", "{{job_id}}", COUNT, many=True, colour=SKY
    ),
    stacked=True,
    to=link("job", job_id="${__field.labels.job_id}"),
)
margin = lines(
    "Temperature margin of GPUs",
    "Degrees left until the hardware slows down. Vermilion line: 5 degrees.",
    (8, 7),
    Query(f"clusterwatt_gpu_temperature_margin_celsius{{{NODE}}}", "{{gpu}}", CELSIUS, many=True, colour=SKY),
    limits=((BLUE, None), (VERMILION, 5)),
    colours=BY_GPU,
)
hbm = lines(
    "Memory temperature of GPUs",
    "Temperature of the GPU's memory where the card has the sensor. Vermilion line: 95 degrees.",
    (8, 7),
    Query(
        f'clusterwatt_gpu_temperature_celsius{{{NODE}, sensor="memory"}}',
        "{{gpu}}",
        CELSIUS,
        many=True,
        colour=ORANGE,
    ),
    limits=((BLUE, None), (VERMILION, 95)),
    colours=BY_GPU,
)
inlet = worst_of(
    "Board and inlet temperature (profile full)",
    f"Sensors of the board. {FULL}",
    (8, 7),
    "sensor",
    f"max by (sensor) (clusterwatt_node_temperature_celsius{{{NODE}}})",
    CELSIUS,
    colour=GREEN,
)
cpu = lines(
    "CPU by mode",
    "Share of all CPUs by mode, without idle. `iowait`: waits for storage.",
    (8, 7),
    Query(
        f'sum by (mode) (rate(clusterwatt_cpu_seconds_total{{{NODE}, mode!="idle"}}[$r])) / scalar(max(clusterwatt_cpus{{{NODE}}}))',
        "{{mode}}",
        RATIO,
    ),
    stacked=True,
    colours={"^user$": SKY, "^system$": BLUE, "^iowait$": ORANGE, "^steal$": VERMILION, "^nice$": GREEN},
)
pressure = lines(
    "Pressure; load per CPU",
    "Share of time in which some task waits for the resource (PSI). Right axis: load over CPUs; above 2 is much.",
    (8, 7),
    Query(
        f'rate(clusterwatt_pressure_seconds_total{{{NODE}, kind="some"}}[$r])',
        "{{resource}}",
        RATIO,
        many=True,
        colour=SKY,
    ),
    Query(
        f"clusterwatt_load1{{{NODE}}} / clusterwatt_cpus", "load per CPU", COUNT, right=True, colour=ORANGE
    ),
)
memory = lines(
    "Memory",
    "Memory in use; right axis: swap in use, and processes that the kernel killed for memory.",
    (8, 7),
    Query(
        f"1 - clusterwatt_memory_available_bytes{{{NODE}}} / clusterwatt_memory_total_bytes",
        "used",
        RATIO,
        colour=SKY,
    ),
    Query(
        f"increase(clusterwatt_oom_kills_total{{{NODE}}}[$r])",
        "OOM kills",
        COUNT,
        right=True,
        colour=VERMILION,
    ),
    high=1,
    limits=((BLUE, None), (ORANGE, 0.9)),
)
swap = lines(
    "Swap in use",
    "Any on a training node is worth a look.",
    (8, 7),
    Query(
        f"clusterwatt_memory_swap_total_bytes{{{NODE}}} - clusterwatt_memory_swap_free_bytes", "swap", BYTES
    ),
)
disks = lines(
    "Disks: read and written",
    "Bytes per second of whole physical disks.",
    (8, 7),
    Query(
        f"rate(clusterwatt_disk_read_bytes_total{{{NODE}}}[$r])",
        "{{device}} read",
        BYTES_S,
        many=True,
        colour=SKY,
    ),
    Query(
        f"rate(clusterwatt_disk_written_bytes_total{{{NODE}}}[$r])",
        "{{device}} written",
        BYTES_S,
        many=True,
        colour=ORANGE,
    ),
    to=link("storage", instance="${instance}"),
)
latency = lines(
    "Disks: time of a read",
    "Mean time of a read while there are reads. Above 0.1 s a disk is ill or overrun.",
    (8, 7),
    Query(
        f"rate(clusterwatt_disk_read_seconds_total{{{NODE}}}[$r]) / (rate(clusterwatt_disk_reads_completed_total[$r]) > 0)",
        "{{device}}",
        SECONDS,
        many=True,
        colour=SKY,
    ),
    limits=((BLUE, None), (ORANGE, 0.1)),
)
rails = lines(
    "Rails: sent, share of the link's rate",
    "Bytes sent by each RDMA port over what its link carries. In a training all rails should be alike.",
    (12, 7),
    Query(
        f"rate(clusterwatt_rdma_transmit_bytes_total{{{NODE}}}[$r]) / clusterwatt_rdma_link_rate_bytes_per_second",
        "{{device}}/{{port}}",
        RATIO,
        many=True,
        colour=SKY,
    ),
    to=link("fabric", instance="${instance}"),
)
ethernet = lines(
    "Ethernet: received",
    "Bytes per second of physical interfaces. RDMA does not appear here.",
    (12, 7),
    Query(
        f"rate(clusterwatt_network_receive_bytes_total{{{NODE}}}[$r]) and on (instance, device) "
        'clusterwatt_network_info{kind="physical"}',
        "{{device}}",
        BYTES_S,
        many=True,
        colour=ORANGE,
    ),
)
parts = lines(
    "Power by part, and the node's meter",
    "Power of the parts that are measured or estimated, stacked.",
    (12, 7),
    Query(
        f'sum by (component) (rate(clusterwatt_node_energy_joules_total{{{NODE}, component!="platform"}}[5m]))',
        "{{component}}",
        WATT,
    ),
    stacked=True,
    colours={"^gpu$": SKY, "^cpu$": ORANGE, "^dram$": GREEN, "^other$": "#8E8E8E"},
)
meter = lines(
    "The node's own power meter",
    "Power of the whole node from its BMC or board, where there is a meter, which is read seldom: means of five minutes; with it, the sum of the parts.",
    (12, 7),
    Query(
        f'sum(rate(clusterwatt_node_energy_joules_total{{{NODE}, component="platform"}}[5m]))', "meter", WATT
    ),
    Query(
        f'sum(rate(clusterwatt_node_energy_joules_total{{{NODE}, component!="platform"}}[5m]))',
        "sum of parts",
        WATT,
    ),
)
xids = newest_first(
    "XIDs of seven days",
    "The newest of each code and GPU, newest first. docs/XIDS.md says what each means.",
    (14, 7),
    "max by (gpu, xid, xid_class, severity) "
    f"(clusterwatt_gpu_last_xid_timestamp_seconds{{{NODE}}} > time() - 604800)",
    keys={"gpu": "GPU", "xid": "XID", "xid_class": "Class", "severity": "Severity"},
)
sxids = newest_first(
    "NVSwitch errors of seven days",
    "SXids from the kernel log, newest first.",
    (10, 7),
    "max by (switch, sxid, fatality) "
    f"(clusterwatt_nvswitch_last_sxid_timestamp_seconds{{{NODE}}} > time() - 604800)",
    keys={"switch": "Switch", "sxid": "SXid", "fatality": "Fatality"},
)
by_owner = table(
    "GPU memory by owner",
    "Memory of each job's processes on each GPU; an empty job: processes that no job is known for.",
    (12, 7),
    Query(f"max by (gpu, uuid, job_id) (clusterwatt_gpu_job_memory_used_bytes{{{NODE}}})", "Memory", BYTES),
    Query(f"sum by (gpu, uuid) (clusterwatt_gpu_processes{{{NODE}}})", "Processes", COUNT),
    keys={"gpu": "GPU", "uuid": "uuid", "job_id": "Job"},
    links={"GPU": TO_GPU, "Job": TO_JOB},
    sort="GPU",
    rising=True,
)

BOARD = Board(
    "node",
    "Node",
    "Is the node fit, which jobs are on it, and what limits them.",
    HAS["node"],
    first=[[health], [gpus], [owners, activity, power]],
    folds=[
        ("Temperature", [[margin, hbm, inlet]]),
        ("CPU and memory of the host", [[cpu, pressure, memory]]),
        ("Disks", [[disks, latency, swap]]),
        ("Network", [[rails, ethernet]]),
        ("Power", [[parts, meter]]),
        ("Events", [[xids, sxids]]),
        ("Owners", [[held, by_owner]]),
    ],
    annotations=[events.XID, events.ALERTS_OF_NODE, events.LINK_DOWN, events.RECOVERY, events.MAINTENANCE],
)
