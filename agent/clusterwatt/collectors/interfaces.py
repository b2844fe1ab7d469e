"""What kind of network interface a name stands for, from /sys/class/net.

Specified in Documentation/ABI/testing/sysfs-class-net. Structure decides, the name only where sysfs cannot be
read. Only interfaces of kind `physical` may be added up: every other kind carries bytes that a physical
interface, or an RDMA port, counts as well.
"""

from __future__ import annotations

import re

from clusterwatt.sysfs import Files

CLASS = "/sys/class/net"

# Hardware types (include/uapi/linux/if_arp.h).
ARPHRD_INFINIBAND = 32
ARPHRD_LOOPBACK = 772

# The port of an embedded switch that stands for a virtual or sub-function, or for the function of a host
# behind a DPU (Documentation/networking/devlink/devlink-port.rst). The uplink is called p0 and is physical.
REPRESENTOR = re.compile(r"(c\d+)?pf\d+((vf|sf)\d+)?")

# Without sysfs the name has to do. The first match counts; what matches nothing is taken to be physical.
KINDS_BY_NAME = (
    ("loopback", re.compile(r"lo\d*")),
    ("bond", re.compile(r"bond\d+")),
    ("vlan", re.compile(r".+\.\d+|vlan.*")),
    ("bridge", re.compile(r"(br\d+|br-.*|virbr.*|vmbr.*|docker.*|cni.*|cbr.*|nerdctl.*|podman.*)")),
    (
        "virtual",
        re.compile(
            r"veth.*|vnet.*|cali.*|cilium.*|lxc.*|flannel.*|kube-.*|nodelocaldns|tunl.*|tun.*|tap.*|wg.*|vxlan.*|"
            r"geneve.*|gre.*|erspan.*|ip6.*|sit.*|dummy.*|ifb.*|macv.*|ipvl.*|ovs-.*|ib.*"
        ),
    ),
)


def is_interface(files: Files, name: str) -> bool:
    """Whether an entry of /sys/class/net is an interface; `bonding_masters` beside them is a plain file."""
    return files.exists(f"{CLASS}/{name}/.")


def has_hardware(files: Files, name: str) -> bool:
    """Whether a card stands behind an interface, and no virtual function, which a container may own."""
    return files.exists(f"{CLASS}/{name}/device") and not files.exists(f"{CLASS}/{name}/device/physfn")


def kind_of(files: Files, name: str) -> str:
    """`physical`, `bond`, `vlan`, `bridge`, `virtual`, or `loopback`, by what the kernel shows of it."""
    base = f"{CLASS}/{name}"
    arphrd = files.integer(f"{base}/type")
    if arphrd == ARPHRD_LOOPBACK or (arphrd is None and name == "lo"):
        return "loopback"
    for kind, mark in (("bond", "bonding"), ("bridge", "bridge")):
        if files.exists(f"{base}/{mark}"):
            return kind
    if files.exists(f"{base}/device"):
        return "virtual" if _counted_elsewhere(files, base, arphrd) else "physical"
    uevent = files.text(f"{base}/uevent") or ""
    return "vlan" if "DEVTYPE=vlan" in uevent.split() else "virtual"


def _counted_elsewhere(files: Files, base: str, arphrd: int | None) -> bool:
    """Whether another interface or an RDMA port counts the bytes of one that has hardware behind it."""
    if arphrd == ARPHRD_INFINIBAND:
        return True  # IPoIB: they pass the InfiniBand port
    if files.exists(f"{base}/master/device"):
        # A virtual function below the synthetic interface of a cloud VM (netvsc on Azure, net_failover on
        # virtio), which counts for both (drivers/net/hyperv/netvsc_drv.c, netvsc_get_stats64).
        return True
    return REPRESENTOR.fullmatch(files.text(f"{base}/phys_port_name") or "") is not None


def kind_by_name(name: str) -> str:
    """The same by name only."""
    for kind, pattern in KINDS_BY_NAME:
        if pattern.fullmatch(name):
            return kind
    return "physical"
