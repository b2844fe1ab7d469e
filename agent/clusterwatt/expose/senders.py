"""Whose the process is that reports at the Unix socket: by its cgroup (cgroups(7)).

The number that the socket tells is of the agent's own PID namespace, so the agent's own /proc is asked,
whatever root the node's files are below: there the same number may be another process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from clusterwatt.expose.training import Peer
from clusterwatt.training.intake import Sender
from clusterwatt.workloads.process import look

UNSEEN = 0  # a process in a PID namespace that is not below the agent's (pid_namespaces(7))


class Senders:
    """Looks up senders. `job_of`: job by the name of its members; `root`: what /proc is below."""

    def __init__(self, job_of: Callable[[], Mapping[str, str]], root: str = "") -> None:
        self._job_of = job_of
        self._root = root

    def __call__(self, peer: Peer) -> Sender:
        """Who it is. Raises OSError when /proc does not tell.

        A process that cannot be seen, or that is nobody's, reports for no job.
        """
        seen = None if peer.pid == UNSEEN else look(self._root, peer.pid)
        owner = "" if seen is None else seen.owner.name
        client = owner or f"uid {peer.uid}"
        return Sender(client, known=True, owner=owner, job_id=self._job_of().get(owner, owner))
