"""The page /node/metrics: what this machine does, in the words of node_exporter.

https://github.com/prometheus/node_exporter. docs/NODE_EXPORTER.md lists what differs, and why.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

from clusterwatt.expose.others import held
from clusterwatt.expose.render import OTHERS, Page, headers, label_value, number_text
from clusterwatt.readings.agent import TextFamily, TextFile
from clusterwatt.readings.node_exporter import MountSource, NodeFamily
from clusterwatt.readings.snapshot import Snapshot
from clusterwatt.readings.storage import Filesystem, FilesystemProbe

TABLE = "node_family"  # under which dropped series are counted
SPACE = (
    ("node_filesystem_size_bytes", "size_bytes"),
    ("node_filesystem_free_bytes", "free_bytes"),
    ("node_filesystem_avail_bytes", "available_bytes"),
    ("node_filesystem_files", "files"),
    ("node_filesystem_files_free", "files_free"),
    ("node_filesystem_readonly", "readonly"),
)
MOUNT_LABELS = ("device", "fstype", "mountpoint")


def render(snapshot: Snapshot, max_series: int, *, openmetrics: bool) -> Page:
    """The page of one snapshot; families beyond `max_series` are dropped and counted."""
    page: list[str] = []
    dropped: Counter[str] = Counter()
    series = 0
    names: set[str] = set()
    for family in chain(snapshot.of(NodeFamily), _filesystems(snapshot), _rest(snapshot)):
        texts = [text for sample in family.samples if (text := _sample(family, *sample))]
        if not texts or family.name in names:
            continue
        if series + len(texts) > max_series:
            dropped[TABLE] += len(texts)
            continue
        names.add(family.name)
        series += len(texts)
        page.append(headers(family.name, family.kind, family.help)[openmetrics])
        page += texts
    others = snapshot.of(TextFamily)
    for other in held(others) if openmetrics else others:
        if other.name in names or series + len(other.samples) > max_series:
            dropped[OTHERS] += len(other.samples)
            continue
        series += len(other.samples)
        page.append(headers(other.name, other.kind, other.help)[openmetrics])
        page += (f"{sample}\n" for sample in other.samples)
    if openmetrics:
        page.append("# EOF\n")
    return Page("".join(page).encode(), series, dropped)


def _sample(family: NodeFamily, labels: tuple[str, ...], value: float) -> str:
    """One line; empty for what is not finite."""
    text = number_text(value)
    if text is None:
        return ""
    if not labels:
        return f"{family.name} {text}\n"
    pairs = (f'{name}="{label_value(content)}"' for name, content in zip(family.labels, labels, strict=True))
    return f"{family.name}{{{','.join(pairs)}}} {text}\n"


def _filesystems(snapshot: Snapshot) -> Iterator[NodeFamily]:
    """Space of the mounts, and `device_error` 1 for those that do not answer."""
    devices = {(source.mountpoint, source.fstype): source.device for source in snapshot.of(MountSource)}

    def key(mount: Filesystem | FilesystemProbe) -> tuple[str, ...]:
        return devices.get((mount.mountpoint, mount.fstype), ""), mount.fstype, mount.mountpoint

    mounts = snapshot.of(Filesystem)
    for name, field in SPACE:
        samples = tuple(
            (key(mount), value) for mount in mounts if (value := getattr(mount, field)) is not None
        )
        yield NodeFamily(name, "gauge", "From statvfs(3).", MOUNT_LABELS, samples)
    answered = {key(mount) for mount in mounts}
    probes = {key(probe): 1.0 for probe in snapshot.of(FilesystemProbe)}
    errors = tuple((probe, float(probe not in answered)) for probe in probes)
    yield NodeFamily("node_filesystem_device_error", "gauge", "From statvfs(3).", MOUNT_LABELS, errors)


def _rest(snapshot: Snapshot) -> Iterator[NodeFamily]:
    """The time of the snapshot, and when other tools' files were written."""
    yield NodeFamily("node_time_seconds", "gauge", "Time of this page.", (), (((), snapshot.wall_s),))
    files = tuple(((text.file,), text.last_modified_timestamp_seconds) for text in snapshot.of(TextFile))
    help_text = "When a text file was written."
    yield NodeFamily("node_textfile_mtime_seconds", "gauge", help_text, ("file",), files)
    if files:
        failed = any(text.refused for text in snapshot.of(TextFile))
        help_text = "1 while a text file is refused."
        yield NodeFamily("node_textfile_scrape_error", "gauge", help_text, (), (((), float(failed)),))
