"""Mounts a bucket as a folder with an installed program, checks that it can be read, and unmounts it."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

from flatout.errors import CommandError, UsageError
from flatout.machine.mounts import Mount, read_mounts
from flatout.stage.sources.base import ObjectInfo, StoreOptions
from flatout.stage.sources.failures import Failure
from flatout.stage.sources.s3.credentials import profile_credentials
from flatout.stage.sources.s3.source import S3Source
from flatout.storage.mount_tools import TOOLS, Bucket, Tool, environment

WITHIN_S = 60.0
COMPARED_BYTES = 64 << 10
_UNMOUNT = (("fusermount3", "-u"), ("fusermount", "-u"), ("umount",))
FUSE_MISSING = "fusermount3 was not found: install the package fuse3 (Debian, Ubuntu, Fedora, Alpine)"


@dataclass(frozen=True, kw_only=True)
class Mounted:
    """A mounted bucket.

    Attributes:
        source: address of what is mounted.
        folder: the mount point.
        tool: name of the program.
        key: of the object that was read through the mount and compared; None: the bucket is empty.
        open_s: time to read its first bytes.
        refused: programs tried before, each with the reason why it was not used.
    """

    source: str
    folder: str
    tool: str
    key: str | None
    open_s: float | None
    refused: tuple[str, ...]

    def as_json(self) -> dict[str, object]:
        """Plain values for ``--json``."""
        return asdict(self)


def mount(address: str, folder: Path, options: StoreOptions, only: str | None = None) -> Mounted:
    """Mount a bucket, read-only.

    Args:
        address: ``s3://bucket`` or ``s3://bucket/prefix``.
        folder: made if it does not exist; must be empty.
        options: how the bucket is reached.
        only: name of the program to use; None: the first that works.

    Raises:
        UsageError: no such program or device, or the folder cannot be used.
        CommandError: the bucket cannot be read, or no program could mount it.
    """
    tools = _tools(only)
    _see_no_credentials(options.endpoint)
    bucket = _bucket(address, options)
    source = S3Source(address, options)
    keys = profile_credentials(options.profile)
    _see_no_credentials(bucket.options.endpoint or keys.get("endpoint"))
    if bucket.options.endpoint is None and "endpoint" in keys:
        bucket = replace(bucket, options=replace(bucket.options, endpoint=keys["endpoint"]))
    made = _prepare(folder)
    refused: list[str] = []
    try:
        first = _first(source)
        for tool in tools:
            why = _run(tool, bucket, folder, environment(options, keys))
            if why is None:
                try:
                    took = _compare(source, first, folder)
                    return Mounted(
                        source=source.address,
                        folder=str(folder),
                        tool=tool.name,
                        key=first.key if first else None,
                        open_s=took,
                        refused=tuple(refused),
                    )
                except (OSError, Failure) as error:
                    why = str(error)
                    unmount(folder)
            refused.append(f"{tool.name}: {why}")
    except BaseException:
        if made and not _mount_at(folder):
            folder.rmdir()
        raise
    if made:
        folder.rmdir()
    hint = "" if _has_fusermount() else f"; {FUSE_MISSING}"
    raise CommandError(f"{source.address} could not be mounted: {'; '.join(refused)}{hint}", 1)


def _has_fusermount() -> bool:
    return bool(shutil.which("fusermount3") or shutil.which("fusermount"))


def _see_no_credentials(endpoint: str | None) -> None:
    """Check that an endpoint holds no credentials: every user of the machine can read the mounting command line.

    Raises:
        UsageError: there are credentials in it.
    """
    if endpoint is None:
        return
    parts = urlsplit(endpoint)
    if "@" in parts.netloc or parts.query:
        raise UsageError(
            f"--endpoint {parts.scheme}://…@{parts.hostname}: credentials do not belong into an address, where other "
            "users can see them: use --profile or the environment"
        )


def _tools(only: str | None) -> list[Tool]:
    if not os.path.exists("/dev/fuse"):
        raise UsageError(
            "/dev/fuse: not there, so nothing can be mounted here (in a container: --device /dev/fuse "
            "--cap-add SYS_ADMIN); staging needs none: flatout stage"
        )
    names = ", ".join(f"{tool.name} ({tool.program})" for tool in TOOLS)
    if only is not None and only not in [tool.name for tool in TOOLS]:
        raise UsageError(f"--with {only}: known are {names}")
    found = [tool for tool in TOOLS if only in (None, tool.name) and tool.path()]
    if not found:
        raise UsageError(f"no program that mounts buckets was found: install one of {names}")
    return found


def _bucket(address: str, options: StoreOptions) -> Bucket:
    parts = urlsplit(address)
    if parts.scheme not in ("s3", "s3a") or not parts.netloc:
        raise UsageError(f"{address}: only buckets can be mounted: s3://bucket, or s3://bucket/prefix")
    endpoint = options.endpoint or os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    region = options.region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    region = region or ("us-east-1" if endpoint else None)
    return Bucket(parts.netloc, parts.path.strip("/"), replace(options, endpoint=endpoint, region=region))


def _prepare(folder: Path) -> bool:
    """Create the folder, or check that it is empty and not a mount; returns True if it was created."""
    there = _mount_at(folder)
    if there is not None:
        raise UsageError(f"{folder}: {there.kind} is mounted there already: flatout unmount {folder}")
    try:
        folder.mkdir(parents=True)
        return True
    except FileExistsError:
        if not folder.is_dir() or any(folder.iterdir()):
            raise UsageError(f"{folder}: not an empty folder: what is in it would be hidden") from None
        return False
    except OSError as error:
        raise UsageError(f"{folder}: {error.strerror or error}") from None


def _first(source: S3Source) -> ObjectInfo | None:
    """An object to compare; also verifies that the bucket can be listed and that the keys are valid."""
    try:
        found = None
        for number, obj in enumerate(source.objects()):
            found = obj if obj.size and found is None else found
            if found is not None or number > 10_000:
                break
        return found
    except Failure as error:
        raise CommandError(str(error), 1) from None


def _run(tool: Tool, bucket: Bucket, folder: Path, variables: dict[str, str]) -> str | None:
    """Mount; returns the reason of a failure."""
    program = tool.path()
    assert program is not None, "only programs that were found are run"
    try:
        ended = subprocess.run(
            [program, *tool.arguments(bucket, folder)],
            env=variables, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            timeout=WITHIN_S, check=False, text=True, errors="replace", start_new_session=True,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"not mounted after {WITHIN_S:.0f} s"
    said = str(Failure("never", (ended.stdout.strip().splitlines() or ["nothing was said"])[-1][:200]))
    if ended.returncode != 0:
        return said
    until = time.monotonic() + 10
    while _mount_at(folder) is None:
        if time.monotonic() > until:
            return f"it ended without a mount: {said}"
        time.sleep(0.1)
    return None


# untested: needs FUSE
def _compare(source: S3Source, first: ObjectInfo | None, folder: Path) -> float | None:
    """Read the beginning of an object both ways; returns the mount's time.

    Raises:
        OSError: the mount cannot be read.
        Failure: the bytes differ.
    """
    if first is None:
        return None
    began = time.monotonic()
    with open(folder / first.key, "rb", buffering=0) as file:
        there = file.read(COMPARED_BYTES)
    took = time.monotonic() - began
    if there != bytes(source.read(first, 0, min(first.size, COMPARED_BYTES)))[: len(there)] or not there:
        raise Failure("changed", f"{first.key}: the mount shows other bytes than the store")
    return took


def unmount(folder: Path) -> str:
    """Unmount a bucket; returns the kind of mount it was.

    Raises:
        UsageError: nothing is mounted there, or something that ``flatout mount`` does not make.
        CommandError: it is in use, or may not be unmounted.
    """
    there = _mount_at(folder)
    if there is None:
        raise UsageError(f"{folder}: nothing is mounted there")
    if there.kind not in [tool.name for tool in TOOLS] or not there.fs_type.startswith("fuse"):
        raise UsageError(
            f"{folder}: a file system of type {there.fs_type} is mounted there, not a bucket: flatout unmounts what "
            f"{', '.join(tool.name for tool in TOOLS)} have mounted; for others there is umount"
        )
    said = FUSE_MISSING
    for program, *options in _UNMOUNT:
        if shutil.which(program) is None:
            continue
        ended = subprocess.run([program, *options, str(folder.absolute())], capture_output=True, text=True, check=False)
        said = " ".join(ended.stderr.split()) or said
        if ended.returncode == 0:
            until = time.monotonic() + 10
            while _mount_at(folder) is not None and time.monotonic() < until:
                time.sleep(0.05)
            return there.kind
    users = _users(folder) if "busy" in said else ""
    raise CommandError(f"{folder}: not unmounted: {said}{users}", 1)


# untested: needs FUSE
def _users(folder: Path) -> str:
    """The processes that use it and that this user may see."""
    import psutil

    inside = str(folder.absolute())
    found = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            paths = [process.cwd(), *(file.path for file in process.open_files())]
        except psutil.Error:
            continue
        if any(path == inside or path.startswith(inside + os.sep) for path in paths):
            found.append(f"{process.info['name']} ({process.info['pid']})")
    return f": used by {', '.join(found[:5])}" if found else ""


def _mount_at(folder: Path) -> Mount | None:
    # Only the parents are resolved: a stat of the mount itself hangs if its server is gone.
    point = os.path.join(os.path.realpath(folder.absolute().parent), folder.name)
    # Of several stacked mounts, the last one is visible.
    return next((mount for mount in reversed(read_mounts(Path("/")) or []) if mount.point == point), None)
