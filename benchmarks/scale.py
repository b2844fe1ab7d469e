"""How much the pages of a fleet are to a store: series, samples per second, bytes of a sample on disk.

    python -m benchmarks.scale [minutes]

For each profile an agent with eight simulated H100 and jobs runs beside a Prometheus of its own, which
scrapes it each 5 s, so that chunks fill in minutes as they do in half an hour at 15 s (a chunk of the TSDB
holds 120 samples). Then the TSDB is told to write what it has as a block, and the block's files are counted.
`docs/SCALE.md` says what follows from the figures, and what does not.
"""

from __future__ import annotations

import contextlib
import json
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from tests.e2e.servers import Server, agent, free_port, query, running, wait_for
from tests.e2e.servers import answers as answered
from tests.tools import apt

PROFILES = ("minimal", "standard", "full")
EVERY_S = 5
USUAL_S = 15
DAY_S = 86_400
NODES = (10, 100, 1_000, 10_000)
CONFIG = """\
global: {{scrape_interval: {every}s, scrape_timeout: {every}s}}
scrape_configs:
  - job_name: clusterwatt
    static_configs: [{{targets: ['{target}']}}]
"""


@contextlib.contextmanager
def store(program: Path, folder: Path, target: str) -> Iterator[Server]:
    """A Prometheus that may be told to write a block."""
    log, port, config = folder / "prometheus.log", free_port(), folder / "prometheus.yml"
    config.write_text(CONFIG.format(every=EVERY_S, target=target.removeprefix("http://")))
    command: list[str | Path] = [
        program,
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--web.enable-admin-api",
    ]
    with running(command, log) as process:
        url = f"http://127.0.0.1:{port}"
        wait_for(process, log, lambda: answered(f"{url}/-/ready"), "ready")
        yield Server(process, url, log)


def block(server: Server, folder: Path) -> tuple[int, int, dict[str, int]]:
    """Samples and series of the block that the TSDB writes now, and the bytes of its files."""
    request = urllib.request.Request(f"{server.url}/api/v1/admin/tsdb/snapshot", method="POST")
    with urllib.request.urlopen(request, timeout=120) as answer:
        name = json.load(answer)["data"]["name"]
    (meta,) = (folder / "tsdb" / "snapshots" / name).glob("*/meta.json")
    stats = json.loads(meta.read_text())["stats"]
    sizes = {
        "chunks": sum(path.stat().st_size for path in (meta.parent / "chunks").iterdir()),
        "index": (meta.parent / "index").stat().st_size,
    }
    return stats["numSamples"], stats["numSeries"], sizes


def disk_per_day(series: float, bytes_per_sample: float, nodes: int) -> str:
    """Disk of a fleet for one day, in the unit that suits."""
    size = series / USUAL_S * bytes_per_sample * DAY_S * nodes
    return f"{size / 1e9:.2f} GB" if size < 1e12 else f"{size / 1e12:.2f} TB"


def report(profile: str, server: Server, folder: Path, page_bytes: int) -> None:
    """Print the figures of one profile."""
    scraped = query(server, "scrape_samples_scraped")[""]
    memory = query(server, "prometheus_tsdb_head_series") or {"": 0.0}
    samples, series, sizes = block(server, folder)
    of_chunks, of_index = sizes["chunks"] / samples, sizes["index"] / series
    # Of an index each block of two hours needs one; those that are merged to more days share it.
    per_sample = of_chunks + of_index / (2 * 3_600 / USUAL_S)
    print(f"{profile}: {scraped:.0f} series on the page, {page_bytes} bytes of text; {series} in the store")
    print(f"  {samples} samples, {samples / series:.0f} of each series; head {memory.get('', 0):.0f}")
    print(f"  {of_chunks:.2f} bytes a sample, {of_index:.0f} bytes of index a series")
    print(f"  {per_sample:.2f} bytes a sample in a block of two hours, scraped each {USUAL_S} s")
    for nodes in NODES:
        rate = scraped * nodes / USUAL_S
        day = disk_per_day(scraped, per_sample, nodes)
        print(f"  {nodes:6} nodes: {scraped * nodes:12.0f} series, {rate:10.0f} samples/s, {day} a day")
    sys.stdout.flush()


def main() -> None:
    """Run all profiles side by side for some minutes."""
    minutes = float(sys.argv[1]) if len(sys.argv) > 1 else 10.0
    program = apt.fetch("prometheus")
    with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
        measured = []
        for profile in PROFILES:
            folder = Path(name, profile)
            folder.mkdir()
            node = stack.enter_context(
                agent(folder, "--simulate", "h100", "--set", f"limits.profile={profile}")
            )
            measured.append((profile, node, stack.enter_context(store(program, folder, node.url)), folder))
        time.sleep(minutes * 60)
        for profile, node, server, folder in measured:
            report(profile, server, folder, len(node.get("/metrics")))


if __name__ == "__main__":
    main()
