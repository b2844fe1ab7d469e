"""Where the agent keeps its files unless it is told otherwise: of the system for root, else of the user."""

from __future__ import annotations

import os
from pathlib import Path

SYSTEM_STATE_FOLDER = Path("/var/lib/clusterwatt")
SYSTEM_RELEASE_FILE = "/run/clusterwatt/driver-release"


def state_folder() -> Path:
    """Where the agent keeps what must last: the system's state folder for root, the user's own for others."""
    if os.geteuid() == 0:
        return SYSTEM_STATE_FOLDER
    home = os.path.expanduser("~")
    state = os.environ.get("XDG_STATE_HOME") or str(Path(home, ".local", "state"))
    # A container that runs under a number has no home and no entry in passwd: "~" comes back as it is.
    return Path(state, "clusterwatt") if state.startswith("/") else SYSTEM_STATE_FOLDER


def default_release_file() -> str:
    """Where the operator asks for the driver: in the run folder of the system for root, else of the user."""
    folder = os.environ.get("XDG_RUNTIME_DIR", "")
    if os.geteuid() == 0 or not folder.startswith("/"):
        return SYSTEM_RELEASE_FILE
    return str(Path(folder, "clusterwatt", "driver-release"))
