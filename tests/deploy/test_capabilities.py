"""What the two capabilities of the DaemonSet are for, asked of this machine's kernel."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.full,
    pytest.mark.skipif(
        os.geteuid() != 0, reason="this machine's user is not root, who alone can give capabilities"
    ),
    pytest.mark.skipif(shutil.which("setpriv") is None, reason="this machine has no setpriv (util-linux)"),
]
STRANGER = 65534


def confined(*capabilities: str, uid: int = 0) -> list[str]:
    """A command as the container's would run: these capabilities, no way to get others."""
    wanted = ",".join(("-all", *(f"+{name}" for name in capabilities)))
    return [
        *("setpriv", "--no-new-privs", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"),
        *(f"--bounding-set={wanted}", f"--inh-caps={wanted}"),
    ]


@pytest.mark.parametrize(
    ("capabilities", "uid", "seen"),
    [
        (("sys_ptrace", "dac_read_search"), 0, True),
        (("dac_read_search",), 0, False),
        (("sys_ptrace",), 0, False),
        ((), 10777, False),
    ],
    ids=["both", "without sys_ptrace", "without dac_read_search", "not root"],
)
def test_variables_of_others_processes_need_both(capabilities: tuple[str, ...], uid: int, seen: bool) -> None:
    command = ["setpriv", f"--reuid={STRANGER}", f"--regid={STRANGER}", "--clear-groups", "sleep", "60"]
    with subprocess.Popen(command, env={"PATH": os.environ["PATH"], "SLURM_JOB_ID": "77"}) as process:
        try:
            path = f"/proc/{process.pid}/environ"
            while Path(f"/proc/{process.pid}/comm").read_text().strip() != "sleep":
                assert process.poll() is None
            done = subprocess.run(
                [*confined(*capabilities, uid=uid), "cat", path], capture_output=True, check=False
            )
        finally:
            process.kill()
    assert (b"SLURM_JOB_ID=77" in done.stdout) is seen, done.stderr


def test_root_without_capabilities_reaches_a_socket_that_only_root_may_use(tmp_path: Path) -> None:
    """The kubelet's: its folder is 0750, and nobody but root may write to the socket."""
    folder = tmp_path / "pod-resources"
    folder.mkdir(mode=0o750)
    code = (
        "import os, socket, subprocess, sys\n"
        "server = socket.socket(socket.AF_UNIX); server.bind(sys.argv[1]); server.listen()\n"
        "os.chmod(sys.argv[1], 0o600)\n"
        "ask = 'import socket, sys; socket.socket(socket.AF_UNIX).connect(sys.argv[1])'\n"
        "sys.exit(subprocess.run([*sys.argv[2:], sys.executable, '-c', ask, sys.argv[1]]).returncode)\n"
    )
    address = str(folder / "kubelet.sock")
    done = subprocess.run(
        [sys.executable, "-c", code, address, *confined("sys_ptrace", "dac_read_search")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
