"""The class of the disk under a file system, from /sys."""

from __future__ import annotations

import os
from pathlib import Path

from flatout.machine.files import read_int, read_text

# Models and vendors as disks report them.
_NETWORK_MODELS = ("amazon elastic block store", "persistentdisk", "nvme_card-pd", "hyperdisk")
_LOCAL_MODELS = ("amazon ec2 nvme instance storage", "ephemeraldisk")
# A virtual disk reports what its hypervisor makes up: neither "rotational" nor its place can be believed.
_VIRTUAL_VENDORS = ("qemu", "msft", "vmware", "google", "virtual", "vbox", "xen", "0x1af4")
_VIRTUAL_NAMES = ("vd", "xvd", "loop", "zram", "ram")
_NETWORK_NAMES = ("rbd", "nbd", "drbd")
_NVME_OVER_FABRICS = ("tcp", "rdma", "fc")

Class = tuple[str, bool | None]  # kind and remote, as in Mount
UNKNOWN: Class = ("local", None)


def disk_class(device: str, source: str, root: Path) -> Class:
    """Class of a mounted block device.

    Args:
        device: ``major:minor`` of the file system.
        source: What is mounted, such as ``/dev/nvme0n1p1``; used where the file system (btrfs, zfs) has
            its own device number.
        root: The folder that holds ``sys``.

    Returns:
        Kind ("nvme", "ssd", "hdd", "network disk", or "local" if it cannot be determined) and whether it
        is reached over a network (None: cannot be determined).
    """
    for entry in (root / "sys/dev/block" / device, root / "sys/class/block" / source.rpartition("/")[2]):
        # An empty source name would make the class folder itself the entry.
        if entry.name != "block" and entry.exists():
            return _class_of(Path(os.path.realpath(entry)))
    return UNKNOWN


def _class_of(folder: Path, depth: int = 0) -> Class:
    """Class of a block device by its folder in /sys, symbolic links resolved."""
    if (folder / "partition").exists():
        folder = folder.parent
    name = folder.name
    if name.startswith(("dm-", "md")):
        return _class_of_parts(folder / "slaves", depth)
    if name.startswith(_NETWORK_NAMES):
        return "network disk", True
    # iSCSI disks hang below a session of their initiator.
    if any(part.startswith("session") for part in folder.parts):
        return "network disk", True
    model = (read_text(folder / "device/model") or "").strip().lower()
    vendor = (read_text(folder / "device/vendor") or "").strip().lower()
    transport = (read_text(folder / "device/transport") or "").strip()
    if model.startswith(_NETWORK_MODELS) or transport in _NVME_OVER_FABRICS:
        return "network disk", True
    if name.startswith("nvme"):
        return "nvme", False
    if model.startswith(_LOCAL_MODELS):
        return "ssd", False
    if name.startswith(_VIRTUAL_NAMES) or vendor.startswith(_VIRTUAL_VENDORS) or "virtual" in model:
        return UNKNOWN
    rotational = read_int(folder / "queue/rotational")
    if rotational is None:
        return UNKNOWN
    return ("hdd" if rotational else "ssd"), False


def _class_of_parts(slaves: Path, depth: int) -> Class:
    """Class of a mapped or RAID device: that of its parts when they all agree."""
    try:
        parts = [Path(os.path.realpath(entry)) for entry in slaves.iterdir()]
    except OSError:
        return UNKNOWN
    classes = {_class_of(part, depth + 1) for part in parts} if depth < 8 else set()
    return classes.pop() if len(classes) == 1 else UNKNOWN
