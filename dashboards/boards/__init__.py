"""The boards, in the order of their links; each module holds one as `BOARD`."""

from __future__ import annotations

from dashboards.board import Board
from dashboards.boards import cluster, energy, fabric, fleet, gpu, job, node, storage

BOARDS: tuple[Board, ...] = (
    cluster.BOARD,
    job.BOARD,
    node.BOARD,
    gpu.BOARD,
    fabric.BOARD,
    storage.BOARD,
    energy.BOARD,
    fleet.BOARD,
)
