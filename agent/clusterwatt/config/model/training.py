"""Section `training`: runs, what they report, and what their models cost."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from clusterwatt.config.model.section import Collector, NotEmpty, Pattern, Section, Tick

Quantity = Literal[
    "train_loss",
    "eval_loss",
    "train_accuracy",
    "eval_accuracy",
    "learning_rate",
    "gradient_norm",
    "step",
    "step_duration_seconds",
    "tokens_total",
    "tokens_per_second",
    "tokens_per_second_per_gpu",
    "samples_per_second",
    "loss_scale",
]


class TrainingApi(Section, frozen=True):
    """Reports of training processes, `POST /api/v1/training` (docs/TRAINING.md); taken nowhere by default.

    `enabled`: take them at the address of the page, from processes of this machine. Any of its users can then
    report for any job. `socket`: path of a Unix socket that takes nothing else; empty: none. There the kernel
    says whose a process is, and none reports for another's job. Containers mount the folder it is in.
    `socket_mode`: who may use it.
    """

    enabled: bool = False
    socket: str = ""
    socket_mode: Literal["0600", "0660", "0666"] = "0666"


class TrainingModel(Section, frozen=True):
    """What a model costs to train: FLOP per token, and the precision whose peak it is measured against.

    `flops_per_token` as it is; or 6 for each of `parameters` (of a mixture of experts, those that are active
    for a token), and 12 x `layers` x `hidden_size` x `sequence_length` for attention where these are given.
    """

    runs: Annotated[str, Meta(min_length=1, extra={"form": "pattern"})] = ".*"
    parameters: Annotated[float, Meta(ge=0, le=1e15)] = 0.0
    layers: Annotated[int, Meta(ge=0, le=100_000)] = 0
    hidden_size: Annotated[int, Meta(ge=0, le=10_000_000)] = 0
    sequence_length: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    flops_per_token: Annotated[float, Meta(ge=0, le=1e18)] = 0.0
    precision: Literal["", "bf16", "fp16", "tf32", "fp8", "fp4", "fp32", "fp64_tensor"] = ""
    gpus: Annotated[int, Meta(ge=0, le=1_000_000)] = 0


class Training(Collector, frozen=True):
    """Training runs, from the TensorBoard files that they write and from what they report.

    `directories`: folders to look into, also those that appear later; each folder below with event files is a
    run. `read_from`: where to begin in a file that is found: its `tail`, of `tail_bytes`, or its `start`.
    `live_seconds`: a file that was not written for so long is not followed, nor is its run exported.
    `max_runs`: further runs are left out, the ones written last stand.
    `hosts`: names of this node besides its own, as regular expressions on the whole name: a run is exported
    by the node whose name is in the file's name. `any_host`: export runs of every name, and those whose files
    carry none; only for folders that no other node sees.
    `tags`: quantity by tag, beyond what is known of the common frameworks. `scalars`: further tags to export
    under their own name, as regular expressions on the whole tag.
    `job_from_path`: a regular expression, with a group `job`, that finds the Slurm job in the path of a run
    whose process does not tell.
    `models`: by any name, what the models of the runs cost, for model FLOP utilisation; the first whose
    `runs`, a regular expression on the whole name, fits is that of a run. Each has `flops_per_token`; or
    `parameters` (of a mixture of experts, the active ones) and, for attention, `layers`, `hidden_size` and
    `sequence_length`; its `precision`; and `gpus`, how many the whole run has, where no scheduler tells.
    """

    every_seconds: Tick = 2.0
    directories: tuple[NotEmpty, ...] = ()
    read_from: Literal["tail", "start"] = "tail"
    tail_bytes: Annotated[int, Meta(ge=1 << 12, le=1 << 30)] = 1 << 20
    live_seconds: Annotated[float, Meta(ge=60, le=31_536_000)] = 21_600.0
    max_runs: Annotated[int, Meta(ge=1, le=4_096)] = 256
    hosts: tuple[Pattern, ...] = ()
    any_host: bool = False
    tags: dict[str, Quantity] = msgspec.field(default_factory=dict)
    scalars: tuple[Pattern, ...] = ()
    job_from_path: Pattern = ""
    models: dict[str, TrainingModel] = msgspec.field(default_factory=dict)
    api: TrainingApi = TrainingApi()
