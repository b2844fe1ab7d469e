"""`python -m tests.tools.image`: build the Dockerfile without a container engine or registry; try the image.

As root, with buildah and debootstrap from Debian. The base is made of Debian's packages in place of the image
of the same content, so what is built here is for trying out. It takes minutes, so CI does not run it.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SUITE = "bookworm"
BASE, IMAGE = "localhost/base:debian", "localhost/clusterwatt:try"
# In the image: a node that does not exist, its page, and an end on request.
TRY = """
set -e
test "$(id -u)" = 10777
! touch /opt/clusterwatt/written 2>/dev/null
export CLUSTERWATT_SIMULATE__PROFILE=h100
clusterwatt run --listen 127.0.0.1:0 2>/tmp/log & agent=$!
python - <<'END'
import re, time, urllib.request
def get(path):
    address = re.search(r'listening on (http://[^\\s"]+)', open("/tmp/log").read())[1]
    return urllib.request.urlopen(address + path, timeout=5).read().decode()
for _ in range(60):  # not healthy before its first tick
    time.sleep(0.5)
    try:
        gpus = re.findall(r"^clusterwatt_gpu_info\\{.*$", get("/metrics"), re.MULTILINE)
        if get("/healthz").strip() == "ok" and len(gpus) == 8:
            break
    except (OSError, TypeError):
        pass
else:
    raise SystemExit(open("/tmp/log").read())
print("healthy, with", len(gpus), "simulated GPUs on the page")
END
kill $agent
wait $agent
echo "ended with 0"
"""


class Builder:
    """buildah with a store of its own, so that nothing on the machine changes."""

    def __init__(self, folder: Path) -> None:
        self._options = [
            *("--root", str(folder / "store")),
            *("--runroot", str(folder / "run")),
            *("--storage-driver", "vfs"),
        ]

    def run(self, *arguments: str) -> str:
        command = ["buildah", *self._options, *arguments]
        return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()

    def base(self, tree: Path) -> None:
        """The first image, from a tree of files."""
        container = self.run("from", "scratch")
        self.run("copy", "--quiet", container, str(tree), "/")
        self.run("commit", "--quiet", container, BASE)
        self.run("rm", container)


def main() -> int:
    """Build, try, print the size."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--certificates", type=Path, help="of the registry of packages, where it has its own")
    certificates: Path | None = parser.parse_args().certificates
    for program in ("buildah", "debootstrap"):
        if shutil.which(program) is None:
            sys.exit(
                f"{program} is missing: apt-get install -y --no-install-recommends buildah debootstrap crun"
            )
    with tempfile.TemporaryDirectory(prefix="clusterwatt-image-") as name:
        folder = Path(name)
        tree = folder / "base"
        subprocess.run(["debootstrap", "--variant=minbase", SUITE, str(tree)], check=True)
        for leftover in ("var/cache/apt/archives", "var/lib/apt/lists"):
            shutil.rmtree(tree / leftover)
        if certificates is not None:
            shutil.copy(certificates, tree / "usr/local/share/registry.pem")
            (tree / "etc/pip.conf").write_text("[global]\ncert = /usr/local/share/registry.pem\n")
        builder = Builder(folder)
        builder.base(tree)
        shutil.rmtree(tree)
        isolation = ("--isolation", "chroot")
        docker = ("--format", "docker", "--pull=never", "--layers=false", "--timestamp", "0")
        builder.run("build", *isolation, *docker, "--build-arg", f"BASE={BASE}", "-t", IMAGE, str(ROOT))
        container = builder.run("from", "--pull-never", IMAGE)
        print(builder.run("run", *isolation, container, "--", "sh", "-c", TRY))
        for image in json.loads(builder.run("images", "--json")):
            print(*(image["names"] or ["-"]), image["size"])
    return 0


if __name__ == "__main__":
    sys.exit(main())
