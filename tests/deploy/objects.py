"""Kubernetes objects in files, and what they ask of a node."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

Object = Mapping[str, Any]

# https://kubernetes.io/docs/concepts/security/pod-security-standards/: the controls of `baseline` and of
# `restricted` that a pod of ours can touch. Volumes, probes and the rest are the same in all our profiles.
BASELINE_CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)


@functools.cache
def objects(text: str) -> tuple[Object, ...]:
    """All objects of a file; the boards are large: each text is read once, by libyaml where there is one."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return tuple(each for each in yaml.load_all(text, loader) if each)


def only(text: str, kind: str) -> Object:
    """The one object of a kind."""
    (found,) = [each for each in objects(text) if each["kind"] == kind]
    return found


def pod(text: str) -> Object:
    """The pod that the DaemonSet makes."""
    found: Object = only(text, "DaemonSet")["spec"]["template"]["spec"]
    return found


def agent(text: str) -> Object:
    """Its container."""
    (container,) = pod(text)["containers"]
    found: Object = container
    return found


def mounts(text: str) -> dict[str, tuple[Object, Object]]:
    """Each mount and its volume, by the path in the container."""
    volumes = {volume["name"]: volume for volume in pod(text)["volumes"]}
    return {mount["mountPath"]: (mount, volumes[mount["name"]]) for mount in agent(text)["volumeMounts"]}


def above_baseline(text: str) -> Iterator[str]:
    """What in the pod is more than the level `baseline` allows."""
    spec, security = pod(text), agent(text)["securityContext"]
    for name in ("hostPID", "hostNetwork", "hostIPC"):
        if spec.get(name):
            yield name
    if any("hostPath" in volume for volume in spec["volumes"]):
        yield "hostPath"
    if security.get("privileged"):
        yield "privileged"
    added = security.get("capabilities", {}).get("add", [])
    yield from (f"capability {name}" for name in added if name not in BASELINE_CAPABILITIES)
    if not security.get("privileged") and security.get("seccompProfile", {}).get("type") != "RuntimeDefault":
        yield "seccomp"
