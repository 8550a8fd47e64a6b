"""The kind of storage that a path is on, read from the mount table without touching the storage."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flatout.machine.disks import disk_class
from flatout.machine.mountinfo import MountLine, reachable, read_mountinfo


@dataclass(frozen=True)
class Mount:
    """A mounted file system.

    ``kind`` is one of: ``nvme``, ``ssd``, ``hdd``, ``network disk``, ``local`` (a disk of unknown class), ``ram``,
    ``overlay``, ``nfs``, ``smb``, ``lustre``, ``ceph``, ``beegfs``, ``gpfs`` and other network file systems by name,
    an object-store mount by product (``mountpoint-s3``, ``rclone``, …), ``fuse`` (product unknown), ``kernel`` (proc,
    sysfs and the like), ``unknown``.
    ``remote`` is None if this machine cannot know: an overlay, a virtual disk, an unknown FUSE product.
    """

    point: str
    kind: str
    source: str
    fs_type: str
    remote: bool | None


NOWHERE = Mount("/", "unknown", "", "", None)

_RAM = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_KERNEL = {
    "autofs",
    "binfmt_misc",
    "bpf",
    "cgroup",
    "cgroup2",
    "configfs",
    "debugfs",
    "devpts",
    "efivarfs",
    "fuse.lxcfs",
    "fusectl",
    "mqueue",
    "nfsd",
    "nsfs",
    "proc",
    "pstore",
    "resctrl",
    "rpc_pipefs",
    "securityfs",
    "selinuxfs",
    "smackfs",
    "sysfs",
    "tracefs",
}
# File system type -> kind; all are reached over a network.
_NETWORK = {
    "nfs": "nfs",
    "nfs4": "nfs",
    "cifs": "smb",
    "smb3": "smb",
    "smbfs": "smb",
    "lustre": "lustre",
    "ceph": "ceph",
    "beegfs": "beegfs",
    "gpfs": "gpfs",
    "wekafs": "weka",
    "pvfs2": "orangefs",
    "afs": "afs",
    "glusterfs": "glusterfs",
}
# Name of a FUSE mount (subtype or source) -> kind; all are reached over a network.
_FUSE = {
    "mountpoint-s3": "mountpoint-s3",
    "rclone": "rclone",
    "s3fs": "s3fs",
    "geesefs": "geesefs",
    "goofys": "goofys",
    "juicefs": "juicefs",
    "gcsfuse": "gcsfuse",
    "s3ql": "s3ql",
    "blobfuse": "blobfuse",
    "blobfuse2": "blobfuse",
    "sshfs": "sshfs",
    "ceph": "ceph",
    "ceph-fuse": "ceph",
    "glusterfs": "glusterfs",
    "curlftpfs": "curlftpfs",
    "davfs": "davfs",
}
_OVERLAY = {"overlay", "aufs", "fuse.fuse-overlayfs", "fuse.overlayfs"}
_VIRTUAL_MACHINE = {"9p", "virtiofs", "vboxsf", "fuse.vmhgfs-fuse", "drvfs"}
_CREDENTIALS = re.compile(r"(?<=://)[^/@]*@")


def classify(line: MountLine, root: Path) -> Mount:
    """Name the storage behind a line of mountinfo; ``root`` holds the /sys that tells disks apart."""
    kind, remote = _kind(line, root)
    # A source may be an address with a password in it, which has no place in a record.
    return Mount(line.point, kind, _CREDENTIALS.sub("", line.source), line.fs_type, remote)


def _kind(line: MountLine, root: Path) -> tuple[str, bool | None]:
    fs_type = line.fs_type
    if fs_type in _RAM:
        return "ram", False
    if fs_type in _KERNEL:
        return "kernel", False
    if fs_type in _NETWORK:
        return _NETWORK[fs_type], True
    if fs_type in _OVERLAY:
        return "overlay", None
    if fs_type in _VIRTUAL_MACHINE:
        return "host folder", None  # shared by the machine's host, which may itself mount it from anywhere
    if fs_type == "fuse" or fs_type.startswith("fuse."):
        return _fuse_kind(fs_type, line.source)
    return disk_class(line.device, line.source, root)


def _fuse_kind(fs_type: str, source: str) -> tuple[str, bool | None]:
    """Products call themselves by subtype (fuse.rclone); some only by their source (mountpoint-s3)."""
    subtype = fs_type.partition(".")[2]
    name = source.rpartition("/")[2].partition(":")[0].lower()
    for candidate in (subtype, name):
        if candidate in _FUSE:
            return _FUSE[candidate], True
    return "fuse", None


def read_mounts(root: Path, pid: int | str = "self") -> list[Mount] | None:
    """The mounts that a process can reach, in the kernel's order; None when they cannot be read."""
    lines = read_mountinfo(root, pid)
    return None if lines is None else [classify(line, root) for line in reachable(lines)]


def mount_of(path: str | os.PathLike[str], mounts: Sequence[Mount]) -> Mount:
    """The mount that a path is on, by the longest mount point that contains it.

    Works on the name alone: no stat, which costs a round trip on remote storage. Symbolic links
    are therefore not followed; resolve the path first if it may hold some.

    Args:
        path: An absolute path.
        mounts: As from ``read_mounts``; of equal mount points the last counts.

    Returns:
        The mount; ``NOWHERE`` (kind "unknown") when none contains the path.

    Raises:
        ValueError: The path is relative.
    """
    name = os.fspath(path)
    if not name.startswith("/"):
        raise ValueError(f"path must be absolute, got {name!r}; join it with the folder it is relative to")
    name = "/" + os.path.normpath(name).lstrip("/")
    best, length = NOWHERE, -1
    for mount in mounts:
        point = mount.point.rstrip("/")
        if len(point) >= length and (name == point or name.startswith(point + "/")):
            best, length = mount, len(point)
    return best
