"""Events that boards can show over their lines; each board says which are on at first."""

from __future__ import annotations

from dashboards.board import Annotation
from dashboards.colours import BLUE, GREY, ORANGE, VERMILION

JOB_START = Annotation(
    "Job start",
    'min by (job_id) (clusterwatt_job_start_timestamp_seconds{job_id=~"$job_id"}) * 1000',
    "{{job_id}}",
    BLUE,
    on=True,
    from_value=True,
)
XID = Annotation(
    "XID",
    'clusterwatt_gpu_last_xid_timestamp_seconds{instance=~"$instance"} * 1000',
    "XID {{xid}}, {{xid_class}}: {{instance}} GPU {{gpu}}",
    VERMILION,
    on=True,
    from_value=True,
)
XID_OF_GPU = Annotation(
    "XID",
    'clusterwatt_gpu_last_xid_timestamp_seconds{uuid="$uuid"} * 1000',
    "XID {{xid}}, {{xid_class}}",
    VERMILION,
    on=True,
    from_value=True,
)
XID_OF_JOB = Annotation(
    "XID",
    "(clusterwatt_gpu_last_xid_timestamp_seconds $ofjob) * 1000",
    "XID {{xid}}, {{xid_class}}: {{instance}} GPU {{gpu}}",
    VERMILION,
    on=True,
    from_value=True,
)
ALERTS_OF_JOB = Annotation(
    "Alerts firing",
    'count by (alertname, severity) (ALERTS{alertstate="firing", job_id="$job_id"})',
    "{{alertname}}, {{severity}}",
    ORANGE,
    on=True,
)
ALERTS_OF_NODE = Annotation(
    "Alerts firing",
    'count by (alertname, severity) (ALERTS{alertstate="firing", instance="$instance"})',
    "{{alertname}}, {{severity}}",
    ORANGE,
    on=True,
)
PHASES = Annotation(
    "Evaluation and checkpoint",
    'max by (run, phase) (clusterwatt_training_phase{job_id="$job_id", run=~"$run", phase=~"eval|checkpoint"} == 1)',
    "{{phase}} of {{run}}",
    GREY,
)
LINK_DOWN = Annotation(
    "Link went down",
    'increase(clusterwatt_rdma_link_downed_total{instance=~"$instance"}[$r]) > 0',
    "{{instance}} {{device}}/{{port}}",
    VERMILION,
    on=True,
)
DRIVER = Annotation(
    "Driver changed",
    "count by (driver) (clusterwatt_driver_info) unless count by (driver) (clusterwatt_driver_info offset 10m)",
    "driver {{driver}}",
    BLUE,
)
MAINTENANCE = Annotation(
    "Maintenance", 'clusterwatt_node_maintenance{instance=~"$instance"} == 1', "{{instance}}", GREY
)
RECOVERY = Annotation(
    "Recovery action",
    'clusterwatt_gpu_recovery_required_info{instance=~"$instance"}',
    "{{action}}: {{instance}} GPU {{gpu}}",
    VERMILION,
)
EVERYWHERE = Annotation(
    "XID of driver or hardware",
    'max by (instance, gpu, xid, xid_class) (clusterwatt_gpu_last_xid_timestamp_seconds{xid_class!="application"}) * 1000',
    "XID {{xid}}, {{xid_class}}: {{instance}} GPU {{gpu}}",
    VERMILION,
    from_value=True,
)
