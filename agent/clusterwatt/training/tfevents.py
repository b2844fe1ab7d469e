"""The scalars in the events of TensorBoard: tensorflow/core/util/event.proto, framework/summary.proto.

Two forms are scalars, as TensorBoard takes them: `simple_value`, and a tensor with one element whose plugin
is `scalars`. A writer need state the plugin in the first event of a tag only. Whatever else an event holds is
passed over. A message that cannot be decoded, although its checksum fits, is counted and nothing more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from clusterwatt import protobuf
from clusterwatt.protobuf import DOUBLE, FIXED32, FIXED64, FLOAT, LENGTH, VARINT, Field, MalformedError
from clusterwatt.training import tensor

WALL_TIME, STEP, SUMMARY, SESSION_LOG = 1, 2, 5, 7  # of Event
VALUE = 1  # of Summary
TAG, SIMPLE_VALUE, TENSOR, METADATA = 1, 2, 8, 9  # of Summary.Value
PLUGIN_DATA, PLUGIN_NAME = 1, 1  # of SummaryMetadata and its PluginData
STATUS, CHECKPOINT = 1, 3  # of SessionLog
SCALARS = "scalars"

WALL_TIME_KEY = WALL_TIME << 3 | FIXED64
STEP_KEY = bytes((STEP << 3 | VARINT,))
STEP_AT = 1 + DOUBLE.size  # in the common form wall time comes first
NO_FIELD: Final = b"\0"  # no field begins so
SUMMARY_KEY = SUMMARY << 3 | LENGTH
SIMPLE_VALUE_KEY = SIMPLE_VALUE << 3 | FIXED32

MAX_TAG = 512  # bytes: a longer one is no name
MAX_KNOWN = 4096  # tags of one file that are remembered

UNKNOWN: Final = ""  # no tag that is remembered: its event has to be decoded


class Scalar(NamedTuple):
    """One value of one tag."""

    tag: str
    value: float
    step: int
    wall_s: float


class Logged(NamedTuple):
    """That something was logged."""

    step: int
    wall_s: float


class Events:
    """Decodes the events of one file.

    `wanted`: whether values of a tag are asked for. `from_start`: whether the file is read from its start; if
    it is, a tensor whose plugin was not seen is no scalar.
    `malformed` counts. `other`: the last scalar that was not asked for. `checkpoint_s`: the wall time of the
    newest checkpoint that a session log notes.
    """

    def __init__(self, wanted: Callable[[str], bool], *, from_start: bool) -> None:
        self.malformed = 0
        self.other: Logged | None = None
        self.checkpoint_s: float | None = None
        self._wanted = wanted
        self._from_start = from_start
        self._plugins: dict[str, str] = {}
        # Most events of a file are alike but for time, step and value. What stands between step and value is
        # looked up here: the tag, or None for one that is not asked for.
        self._tags: dict[bytes, str | None] = {}

    def scalars(self, records: list[bytes]) -> list[tuple[str, float, int, float]]:
        """The scalars in some records that are asked for, in their order: tag, value, step and wall time."""
        found: list[tuple[str, float, int, float]] = []
        tags, wall_time, single = self._tags, DOUBLE.unpack_from, FLOAT.unpack_from
        other = b""
        # Most events have a step as long as that of the one before them, and most of these the same. This
        # runs for each event, so it is written out.
        step, step_field, end = 0, NO_FIELD, 0
        for record in records:
            tag = tags.get(record[end:-4], UNKNOWN)
            if tag is not None and not record.startswith(step_field, STEP_AT):
                step, end = _step(record)
                step_field = record[STEP_AT:end] or NO_FIELD
                tag = tags.get(record[end:-4], UNKNOWN)
            if tag is None and record[0] == WALL_TIME_KEY:
                other = record
            elif tag and record[0] == WALL_TIME_KEY:
                found.append((tag, single(record, len(record) - 4)[0], step, wall_time(record, 1)[0]))
            else:
                try:
                    found.extend(self._decoded(record))
                except MalformedError:
                    self.malformed += 1
        if other:
            self.other = Logged(_step(other)[0], wall_time(other, 1)[0])
        return found

    def _decoded(self, record: bytes) -> list[Scalar]:
        """The scalars of any event. Raises MalformedError."""
        wall_s, step = 0.0, 0
        summaries: list[Field] = []
        session_log: Field | None = None
        for field in protobuf.fields(record, 0, len(record)):
            if field.tag == WALL_TIME:
                wall_s = protobuf.double(record, field)
            elif field.tag == STEP and field.wire == VARINT:
                step = protobuf.signed(field.number)
            elif field.tag == SUMMARY and field.wire == LENGTH:
                summaries.append(field)
            elif field.tag == SESSION_LOG and field.wire == LENGTH:
                session_log = field
        if session_log is not None and _is_checkpoint(record, session_log):
            self.checkpoint_s = wall_s
        scalars: list[Scalar] = []
        for summary in summaries:
            for field in protobuf.fields(record, summary.start, summary.end):
                if field.tag == VALUE and field.wire == LENGTH:
                    scalar = self._value(record, field)
                    if scalar is not None:
                        scalars.append(Scalar(*scalar, step, wall_s))
        wanted = [scalar for scalar in scalars if self._wanted(scalar.tag)]
        if len(scalars) == 1:
            self._remember(record, scalars[0].tag, wanted=bool(wanted))
        if len(wanted) < len(scalars):
            self.other = Logged(step, wall_s)
        return wanted

    def _value(self, record: bytes, value: Field) -> tuple[str, float] | None:
        """Tag and value, if it is a scalar."""
        tag, simple, of_tensor = "", None, None
        plugin: str | None = None
        for field in protobuf.fields(record, value.start, value.end):
            if field.tag == TAG and field.wire == LENGTH:
                if field.end - field.start > MAX_TAG:
                    return None
                tag = protobuf.text(record, field)
            elif field.tag == SIMPLE_VALUE:
                simple = protobuf.single(record, field)
            elif field.tag == TENSOR and field.wire == LENGTH:
                of_tensor = field
            elif field.tag == METADATA and field.wire == LENGTH:
                plugin = _plugin(record, field)
        if simple is not None:
            return tag, simple
        if plugin is None:
            plugin = self._plugins.get(tag, "" if self._from_start else SCALARS)
        elif tag not in self._plugins and len(self._plugins) < MAX_KNOWN:
            self._plugins[tag] = plugin
        if of_tensor is None or plugin != SCALARS:
            return None
        number = tensor.scalar(record, of_tensor)
        return None if number is None else (tag, number)

    def _remember(self, record: bytes, tag: str, *, wanted: bool) -> None:
        """Remember what stands between step and value, if the event is of the common form exactly."""
        name = tag.encode()
        if not 0 < len(name) <= 100 or len(self._tags) >= MAX_KNOWN:  # lengths of one byte
            return
        value = bytes((TAG << 3 | LENGTH, len(name))) + name + bytes((SIMPLE_VALUE_KEY,))
        length = len(value) + 4
        form = bytes((SUMMARY_KEY, length + 2, VALUE << 3 | LENGTH, length)) + value
        if record[:-4].endswith(form):
            self._tags[form] = tag if wanted else None


def _step(record: bytes) -> tuple[int, int]:
    """The step of an event of the common form, which may have none, and where its field ends."""
    if record[STEP_AT : STEP_AT + 1] != STEP_KEY:
        return 0, STEP_AT
    try:
        number, end = protobuf.varint(record, STEP_AT + 1, len(record))
    except MalformedError:
        return 0, STEP_AT
    return protobuf.signed(number), end


def _plugin(record: bytes, metadata: Field) -> str:
    """The name of the plugin that a value is for; empty when it is not said."""
    for field in protobuf.fields(record, metadata.start, metadata.end):
        if field.tag == PLUGIN_DATA and field.wire == LENGTH:
            for part in protobuf.fields(record, field.start, field.end):
                if part.tag == PLUGIN_NAME and part.wire == LENGTH:
                    return protobuf.text(record, part)
    return ""


def _is_checkpoint(record: bytes, session_log: Field) -> bool:
    return any(
        field.tag == STATUS and field.number == CHECKPOINT
        for field in protobuf.fields(record, session_log.start, session_log.end)
    )
