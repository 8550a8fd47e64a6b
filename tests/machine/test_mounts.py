from __future__ import annotations

import os
from pathlib import Path

import pytest

from flatout.machine.mountinfo import parse_mountinfo, reachable
from flatout.machine.mounts import NOWHERE, Mount, classify, mount_of, read_mounts
from tests.machine.fake_root import write

FUSE = "rw,user_id=0,group_id=0,default_permissions,allow_other"
OPTIONS = "rw,nosuid,nodev,relatime shared:96"


@pytest.mark.parametrize(
    ("tail", "kind", "remote"),
    [
        (f"fuse mountpoint-s3 {FUSE}", "mountpoint-s3", True),
        (f"fuse.rclone s3:my-bucket/train {FUSE}", "rclone", True),
        (f"fuse.s3fs s3fs {FUSE}", "s3fs", True),
        (f"fuse.geesefs my-bucket: {FUSE}", "geesefs", True),
        (f"fuse.goofys my-bucket {FUSE}", "goofys", True),
        (f"fuse.juicefs JuiceFS:myjfs {FUSE}", "juicefs", True),
        (f"fuse.gcsfuse my-bucket {FUSE}", "gcsfuse", True),
        (f"fuse gcsfuse {FUSE}", "gcsfuse", True),
        (f"fuse.sshfs me@storage:/data {FUSE}", "sshfs", True),
        (f"fuse my-bucket {FUSE}", "fuse", None),
        (f"fuse.fuse-overlayfs fuse-overlayfs {FUSE}", "overlay", None),
        ("nfs4 10.0.0.5:/export rw,vers=4.1,rsize=1048576,proto=tcp", "nfs", True),
        ("nfs4 fs-0123.efs.us-east-1.amazonaws.com:/ rw,vers=4.1", "nfs", True),
        ("lustre 10.0.1.7@tcp:/fsx rw,checksum,flock", "lustre", True),
        ("cifs //server/share rw,vers=3.1.1,username=me", "smb", True),
        ("ceph 10.0.0.1:6789:/ rw,name=admin", "ceph", True),
        (f"fuse.ceph-fuse ceph-fuse {FUSE}", "ceph", True),
        ("beegfs beegfs_nodev rw,cfgFile=/etc/beegfs/beegfs-client.conf", "beegfs", True),
        ("gpfs gpfs0 rw", "gpfs", True),
        ("tmpfs tmpfs rw,size=24684096k", "ram", False),
        ("overlay overlay rw,lowerdir=/a:/b,upperdir=/c,workdir=/d", "overlay", None),
        ("cgroup2 cgroup2 rw,nsdelegate", "kernel", False),
        ("virtiofs share rw", "host folder", None),
        ("zfs tank/data rw,xattr,noacl", "local", None),
    ],
)
def test_storage_is_named_from_its_mountinfo_line(tmp_path: Path, tail: str, kind: str, remote: bool | None) -> None:
    (line,) = parse_mountinfo(f"98 27 0:51 / /mnt/data {OPTIONS} - {tail}\n")
    mount = classify(line, tmp_path)
    assert (mount.kind, mount.remote, mount.point) == (kind, remote, "/mnt/data")


def disk(
    root: Path, name: str, device: str, files: dict[str, str], partition: str = "", bus: str = "pci0000:00"
) -> None:
    """A block device (and one partition) in a fake /sys, linked to by its numbers."""
    folder = f"sys/devices/{bus}/block/{name}"
    write(root, {f"{folder}/{file}": text for file, text in files.items()})
    target = folder
    if partition:
        target = f"{folder}/{partition}"
        write(root, {f"{target}/partition": "1\n"})
    for link in (f"sys/dev/block/{device}", f"sys/class/block/{partition or name}"):
        (root / link).parent.mkdir(parents=True, exist_ok=True)
        (root / link).symlink_to(os.path.relpath(root / target, (root / link).parent))


STILL = {"queue/rotational": "0\n"}
ROTATES = {"queue/rotational": "1\n"}
ISCSI = "platform/host3/session1/target3:0:0"


@pytest.mark.parametrize(
    ("name", "files", "bus", "kind", "remote"),
    [
        ("nvme0n1", STILL | {"device/model": "Samsung SSD 980 PRO 1TB"}, "pci", "nvme", False),
        ("nvme1n1", STILL | {"device/model": "Amazon EC2 NVMe Instance Storage"}, "pci", "nvme", False),
        ("nvme0n1", STILL | {"device/model": "Amazon Elastic Block Store              "}, "pci", "network disk", True),
        ("nvme2n1", STILL | {"device/model": "Linux", "device/transport": "tcp\n"}, "pci", "network disk", True),
        ("sda", STILL | {"device/vendor": "ATA", "device/model": "MZ7LH960"}, "pci", "ssd", False),
        ("sdb", ROTATES | {"device/vendor": "ATA", "device/model": "ST4000NM"}, "pci", "hdd", False),
        ("sda", ROTATES | {"device/vendor": "Google", "device/model": "PersistentDisk"}, "pci", "network disk", True),
        ("sda", ROTATES | {"device/vendor": "Msft", "device/model": "Virtual Disk"}, "pci", "local", None),
        ("sdc", STILL | {"device/vendor": "LIO-ORG"}, ISCSI, "network disk", True),
        ("vda", ROTATES | {"device/vendor": "0x1af4"}, "pci/virtio1", "local", None),
        ("rbd0", STILL, "rbd/0", "network disk", True),
        ("sdd", {}, "pci", "local", None),
    ],
)
def test_disks_are_classed_by_what_sysfs_says(
    tmp_path: Path, name: str, files: dict[str, str], bus: str, kind: str, remote: bool | None
) -> None:
    disk(tmp_path, name, "259:1", files, partition=f"{name}p1", bus=bus)
    (line,) = parse_mountinfo(f"27 1 259:1 / / rw - ext4 /dev/{name}p1 rw\n")
    mount = classify(line, tmp_path)
    assert (mount.kind, mount.remote) == (kind, remote)


def test_file_system_with_its_own_device_number_is_resolved_by_source(tmp_path: Path) -> None:
    disk(tmp_path, "nvme0n1", "259:0", {"queue/rotational": "0"})
    (line,) = parse_mountinfo("27 1 0:33 /@home /home rw - btrfs /dev/nvme0n1 rw\n")
    assert classify(line, tmp_path).kind == "nvme"


def test_mapped_device_has_the_class_of_its_parts_only_when_they_agree(tmp_path: Path) -> None:
    disk(tmp_path, "sda", "8:0", {"queue/rotational": "0"})
    disk(tmp_path, "sdb", "8:16", {"queue/rotational": "1"})
    slaves = tmp_path / "sys/devices/virtual/block/dm-0/slaves"
    disk(tmp_path, "dm-0", "253:0", {"slaves/.keep": ""}, bus="virtual")
    (slaves / ".keep").unlink()
    (slaves / "sda").symlink_to(tmp_path / "sys/devices/pci0000:00/block/sda")
    (line,) = parse_mountinfo("27 1 253:0 / /data rw - xfs /dev/mapper/vg-data rw\n")
    assert classify(line, tmp_path).kind == "ssd"
    (slaves / "sdb").symlink_to(tmp_path / "sys/devices/pci0000:00/block/sdb")
    assert classify(line, tmp_path).kind == "local"


def test_escapes_optional_fields_and_broken_lines(tmp_path: Path) -> None:
    text = (
        "36 35 98:0 /mnt1 /my\\040data\\134x rw master:1 propagate_from:2 - nfs host:/a\\040b rw\n"
        "not a mountinfo line\n"
        "37 35 98:1 / /plain rw - ext3 /dev/root rw,errors=continue\n"
    )
    first, second = parse_mountinfo(text)
    assert (first.point, first.source, first.root) == ("/my data\\x", "host:/a b", "/mnt1")
    assert (second.point, second.fs_type) == ("/plain", "ext3")


def test_a_password_in_a_source_is_not_kept(tmp_path: Path) -> None:
    (line,) = parse_mountinfo("98 27 0:51 / /mnt rw - fuse.juicefs redis://:secret@host:6379/1 rw\n")
    assert classify(line, tmp_path).source == "redis://host:6379/1"


def test_covered_mounts_are_left_out(tmp_path: Path) -> None:
    text = (
        "27 1 254:0 / / rw - ext4 /dev/vda rw\n"
        "30 27 0:23 / /dev/shm rw - tmpfs first rw\n"
        "31 30 0:27 / /dev/shm rw - tmpfs second rw\n"
        "40 27 0:40 / /data/old rw - nfs host:/old rw\n"
        "41 27 0:41 / /data rw - lustre host:/fsx rw\n"
        "42 41 0:42 / /data/inner rw - tmpfs inner rw\n"
        "43 40 0:43 / /data/old/deep rw - tmpfs deep rw\n"
    )
    assert [line.source for line in reachable(parse_mountinfo(text))] == ["/dev/vda", "second", "host:/fsx", "inner"]


MOUNTS = [
    Mount("/", "nvme", "/dev/nvme0n1p1", "ext4", False),
    Mount("/data", "lustre", "host:/fsx", "lustre", True),
    Mount("/data/cache", "ram", "tmpfs", "tmpfs", False),
]


@pytest.mark.parametrize(
    ("path", "point"),
    [
        ("/data/train/a.jpg", "/data"),
        ("/data", "/data"),
        ("/database/x", "/"),
        ("/data/cache/x", "/data/cache"),
        ("/data/cached/x", "/data"),
        ("/data/cache/../x", "/data"),
        ("//data//cache//x", "/data/cache"),
        ("/", "/"),
    ],
)
def test_mount_of_takes_the_longest_whole_components(path: str, point: str) -> None:
    assert mount_of(path, MOUNTS).point == point


def test_mount_of_takes_the_later_of_two_on_the_same_point() -> None:
    later = Mount("/data", "nfs", "host:/a", "nfs4", True)
    assert mount_of("/data/x", [*MOUNTS, later]) == later


def test_mount_of_without_a_match_is_unknown_and_a_relative_path_is_refused() -> None:
    assert mount_of("/x", []) is NOWHERE
    with pytest.raises(ValueError, match="must be absolute, got 'data/x'"):
        mount_of("data/x", MOUNTS)


def test_unreadable_mount_table_is_none(tmp_path: Path) -> None:
    assert read_mounts(tmp_path) is None
