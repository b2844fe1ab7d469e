"""Fabric: is a rail down, slow or flapping, who is congested, is traffic balanced."""

from __future__ import annotations

from dashboards import events
from dashboards.board import Board, Query
from dashboards.colours import BLUE, GREEN, ORANGE, PINK, SKY, VERMILION, YELLOW, bad_from, good_below
from dashboards.fields import FULL, NONE, NOT_ASKED
from dashboards.links import TO_GPU, TO_NODE, label, link
from dashboards.panels import cells, lines, stats, worst_of
from dashboards.promql import worst
from dashboards.tables import table
from dashboards.units import BITS_S, BYTES_S, COUNT, PER_S, RATIO
from dashboards.variables import HAS

NODES = 'instance=~"$instance"'
EXPECTED = "and on (instance, device, port) clusterwatt_rdma_port_expected == 1"
UP = f"clusterwatt_rdma_port_up{{{NODES}}}"
RATE, EXPECTED_RATE = (
    f"clusterwatt_rdma_link_rate_bytes_per_second{{{NODES}}}",
    f"clusterwatt_rdma_link_rate_expected_bytes_per_second{{{NODES}}}",
)
# A port that is down has no rate: it is 0 all the same. One without a rate to expect is 1 while it is up.
# Each cell is the lowest since the one before: a port that flaps is seldom down at the very moment.
SHARE = f"min_over_time({UP}[$r]) * ({RATE} / {EXPECTED_RATE} or {UP}) {EXPECTED}"
# Of the whole range, so that a port that was down for a moment is among them.
WORST_SHARE = (
    f"min_over_time({UP}[$__range] @ end()) * ({RATE} @ end() / {EXPECTED_RATE} @ end() or {UP} @ end())"
)
LINE_RATE = f"rate(clusterwatt_rdma_transmit_bytes_total{{{NODES}}}[$r]) / clusterwatt_rdma_link_rate_bytes_per_second"
BALANCED = f"(rate(clusterwatt_rdma_transmit_bytes_total{{{NODES}}}[10m]) {EXPECTED})"
WORST = "symbol|retransmit|local_link_integrity|buffer_overrun|transmit_discard|timeout"
ERRORS = {
    "symbol": ORANGE,
    "retransmit": SKY,
    "timeout": VERMILION,
    "local_link_integrity": GREEN,
    "buffer_overrun": PINK,
    "transmit_discard": YELLOW,
}

ports = stats(
    "Ports",
    "Ports that should be up; of them down; linked below the rate they should have; that went down at least "
    "twice in twelve hours. Normal: zero but the first.",
    (24, 4),
    Query(f"count(clusterwatt_rdma_port_expected{{{NODES}}} == 1)", "expected", COUNT, absent="none yet"),
    Query(
        f"count(clusterwatt_rdma_port_up{{{NODES}}} == 0 {EXPECTED}) or vector(0)", "down", COUNT, bad_from()
    ),
    Query(
        f"count(clusterwatt_rdma_link_rate_bytes_per_second{{{NODES}}} < clusterwatt_rdma_link_rate_expected_bytes_per_second "
        "and on (instance, device, port) clusterwatt_rdma_port_up == 1) or vector(0)",
        "too slow",
        COUNT,
        bad_from(),
    ),
    Query(
        f"count(increase(clusterwatt_rdma_link_downed_total{{{NODES}}}[12h]) > 1.5) or vector(0)",
        "flapping",
        COUNT,
        bad_from(),
    ),
)
grid = cells(
    "Rails: rate of the link, share of the expected, the 16 lowest",
    "One row a port, 1 as expected, 0 down; no cell: not expected to be up. Normal: all blue.",
    (14, 8),
    Query(
        f"{SHARE} and on (instance, device, port) bottomk(16, {WORST_SHARE})",
        "{{instance}} {{device}}/{{port}}",
        RATIO,
        ((VERMILION, None), (ORANGE, 0.01), (BLUE, 0.99)),
    ),
    to=link("node", instance=label("instance")),
)
faults = table(
    "Flaps and errors",
    "Ports that went down in twelve hours, and the ports with the most errors in ten minutes.",
    (10, 8),
    Query(
        f"topk(20, max by (instance, device, port) (increase(clusterwatt_rdma_link_downed_total{{{NODES}}}[12h]))) > 0.5",
        "Went down",
        COUNT,
        good_below(1.5, 2.5),
        absent=NONE,
        decimals=0,
    ),
    Query(
        "topk(20, sum by (instance, device, port) (rate("
        f'clusterwatt_rdma_errors_total{{{NODES}, error=~"{WORST}"}}[10m]))) > 0',
        "Errors/s",
        COUNT,
        good_below(1, 100),
        decimals=2,
    ),
    keys={"instance": "Node", "device": "Device", "port": "Port"},
    links={"Node": TO_NODE},
    sort="Went down",
    absent=NONE,
)
traffic = lines(
    "Traffic",
    "Bits per second sent by all ports; right axis: share of the line rate on the middle port and on the busiest "
    "tenth. Wide apart: traffic is not balanced.",
    (12, 7),
    Query(f"8 * sum(rate(clusterwatt_rdma_transmit_bytes_total{{{NODES}}}[$r]))", "all ports", BITS_S),
    Query(f"quantile(0.5, {LINE_RATE})", "median port, of line rate", RATIO, right=True),
    Query(f"quantile(0.9, {LINE_RATE})", "busiest tenth", RATIO, right=True, dashed=True),
)
congestion = lines(
    "Congestion",
    "Events per second by kind: waits for credits in ticks of the card, packets marked, and notifications.",
    (12, 7),
    Query(f"sum by (kind) (rate(clusterwatt_rdma_congestion_total{{{NODES}}}[$r]))", "{{kind}}", PER_S),
    colours={"transmit_wait": ORANGE, "ecn_marked": SKY, "cnp_sent": GREEN, "cnp_handled": VERMILION},
)
balance = worst_of(
    "Balance of rails, the five worst nodes",
    "The weakest expected port of a node over its median port, while there is traffic. Below 0.7: look at it.",
    (12, 7),
    "instance",
    f"min by (instance) {BALANCED} / (quantile by (instance) (0.5, {BALANCED}) > 1e6)",
    RATIO,
    most=5,
    lowest=True,
    high=1,
    limits=((BLUE, None), (ORANGE, 0.7)),
    to=link("node", instance=label("instance")),
)
errors = lines(
    "Errors by kind",
    "Per second over all ports, of the kinds that came up in the range. Symbol errors: cable; retransmits: "
    "loss or congestion.",
    (12, 7),
    Query(
        f"sum by (error) (rate(clusterwatt_rdma_errors_total{{{NODES}}}[$r])) and on (error) "
        f"sum by (error) (increase(clusterwatt_rdma_errors_total{{{NODES}}}[$__range] @ end())) > 0",
        "{{error}}",
        PER_S,
        absent=NONE,
    ),
    colours=ERRORS,
    high=1,
)
pause = worst_of(
    "Pause, the five worst (profile full)",
    f"Share of time that a port was told to wait (PFC). {FULL}",
    (8, 7),
    "instance, device",
    f"sum by (instance, device) (rate(clusterwatt_network_pause_seconds_total{{{NODES}}}[$r]))",
    RATIO,
    colour=ORANGE,
    most=5,
    high=0.1,
)
lost = lines(
    "Ethernet: errors and drops, share of packets",
    "Received with errors or dropped, over packets received. Above 1 %: a bad cable, or a full queue.",
    (8, 7),
    Query(
        worst(
            3,
            "instance, device",
            f"rate(clusterwatt_network_receive_errors_total{{{NODES}}}[$r]) / (rate(clusterwatt_network_receive_packets_total[$r]) > 0)",
        ),
        "errors, {{instance}} {{device}}",
        RATIO,
        many=True,
        colour=VERMILION,
    ),
    Query(
        worst(
            3,
            "instance, device",
            f"rate(clusterwatt_network_receive_drops_total{{{NODES}}}[$r]) / (rate(clusterwatt_network_receive_packets_total[$r]) > 0)",
        ),
        "drops, {{instance}} {{device}}",
        RATIO,
        many=True,
        colour=SKY,
    ),
    high=0.01,
)
carrier = worst_of(
    "Ethernet: changes of carrier in an hour, the worst",
    "How often a link came or went. Normal: none.",
    (8, 7),
    "instance, device",
    f"increase(clusterwatt_network_carrier_changes_total{{{NODES}}}[1h]) > 0.5",
    COUNT,
    colour=ORANGE,
    absent=NONE,
    high=1,
)
nvlink = worst_of(
    "NVLink by node, the busiest",
    "Bytes per second that the node's GPUs send each other.",
    (12, 7),
    "instance",
    f"sum by (instance) (rate(clusterwatt_gpu_nvlink_transmit_bytes_total{{{NODES}}}[$r]))",
    BYTES_S,
    to=link("node", instance=label("instance")),
)
short = table(
    "GPUs with NVLinks missing",
    "Links that the model has and that are not up.",
    (12, 7),
    Query(
        f"max by (instance, gpu, uuid) (clusterwatt_gpu_nvlinks_expected{{{NODES}}} - on (instance, gpu, uuid) "
        "sum by (instance, gpu, uuid) (clusterwatt_gpu_nvlink_up)) > 0",
        "Links missing",
        COUNT,
        bad_from(),
    ),
    keys={"instance": "Node", "gpu": "GPU", "uuid": "uuid"},
    links={"Node": TO_NODE, "GPU": TO_GPU},
    absent=NONE,
)
domains = table(
    "NVLink domains",
    "GPUs by clique and chassis: those of one clique reach each other by NVLink, over nodes too.",
    (8, 7),
    Query(
        f"count by (cluster_uuid, clique, chassis) (clusterwatt_gpu_fabric_info{{{NODES}}})", "GPUs", COUNT
    ),
    keys={"cluster_uuid": "Domain", "clique": "Clique", "chassis": "Chassis"},
)
unregistered = table(
    "GPUs that are not in their NVLink domain",
    "By node: registration not started or in progress.",
    (8, 7),
    Query(
        f'count by (instance) (clusterwatt_gpu_fabric_state{{{NODES}, state=~"not_started|in_progress"}} == 1)',
        "GPUs",
        COUNT,
        bad_from(),
    ),
    keys={"instance": "Node"},
    links={"Node": TO_NODE},
    absent=NONE,
)
imex = table(
    "IMEX domains (profile full)",
    "Those that are not complete come first. Complete: the IMEX daemons of this node and of all others in its "
    "domain run and are connected; without them the GPUs of two nodes share no memory. Empty where no agent is "
    f"asked for it: `collectors.imex.enabled`. {FULL}",
    (8, 7),
    Query(
        f"bottomk(20, max by (instance) (clusterwatt_imex_ready{{{NODES}}}))",
        "Domain",
        COUNT,
        ((VERMILION, None), (BLUE, 1)),
        texts={"0": "not complete", "1": "complete"},
        absent=NOT_ASKED,
    ),
    keys={"instance": "Node"},
    links={"Node": TO_NODE},
    sort="Domain",
    rising=True,
    absent=NOT_ASKED,
)
BOARD = Board(
    "fabric",
    "Fabric",
    "Is a rail down, slow or flapping, who is congested, is traffic balanced.",
    HAS["fabric"],
    first=[[ports], [grid, faults], [traffic, congestion]],
    folds=[
        ("Balance and errors", [[balance, errors]]),
        ("Ethernet", [[lost, carrier, pause]]),
        ("NVLink", [[nvlink, short], [domains, unregistered, imex]]),
    ],
    annotations=[events.LINK_DOWN, events.MAINTENANCE],
)
