"""The variables of the boards, filled from identities, which are there without load."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from dashboards.board import Variable

CLUSTER = Variable("cluster", "cluster", "label_values(clusterwatt_build_info, cluster)")
NODE = Variable(
    "instance", "node", "label_values(clusterwatt_build_info{$cluster}, instance)", every=False, sort=7
)
NODES = replace(NODE, every=True, multi=True)
GPU = Variable(
    "uuid",
    "GPU",
    'query_result(label_join(clusterwatt_gpu_info{$cluster, instance=~"$instance"}, "text", " / ", "gpu", "name"))',
    r'/text="(?<text>[^"]+)".*uuid="(?<value>[^"]+)"/',
    every=False,
    sort=3,
)
JOB = Variable(
    "job_id",
    "job",
    "query_result(topk(200, label_join(max by (job_id, name) (clusterwatt_job_info{$cluster}) * on (job_id) group_left () "
    'min by (job_id) (clusterwatt_job_start_timestamp_seconds{$cluster}), "text", " / ", "name", "job_id")))',
    r'/job_id="(?<value>[^"]+)".*text="(?<text>[^"]+)"/',
    every=False,
    on_range=True,
    sort=0,
)
RUN = Variable(
    "run", "run", 'label_values(clusterwatt_training_info{$cluster, job_id="$job_id"}, run)', multi=True
)
USER = Variable("user", "user", "label_values(clusterwatt_job_info{$cluster}, user)", multi=True)
ACCOUNT = Variable(
    "account", "account", 'label_values(clusterwatt_job_info{$cluster, user=~"$user"}, account)', multi=True
)

# Which variables each board has beyond datasource and cluster: links pass what both ends have.
HAS: Mapping[str, tuple[Variable, ...]] = {
    "cluster": (USER, ACCOUNT),
    "job": (JOB, RUN),
    "node": (NODE,),
    "gpu": (NODE, GPU),
    "fabric": (NODES,),
    "storage": (NODES,),
    "energy": (USER, ACCOUNT),
    "fleet": (),
}
