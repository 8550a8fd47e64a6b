"""Programs that mount a bucket: the arguments of each; keys are passed in the environment."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flatout.stage.sources.base import StoreOptions


@dataclass(frozen=True)
class Bucket:
    """A bucket to mount.

    Attributes:
        name: of the bucket.
        prefix: without slashes at its ends; empty: the whole bucket.
        options: for reaching it.
    """

    name: str
    prefix: str
    options: StoreOptions


@dataclass(frozen=True)
class Tool:
    """A program for mounts.

    Attributes:
        name: of the product.
        program: name of the executable.
        arguments: for a bucket and a folder; the program moves to the background by itself.
    """

    name: str
    program: str
    arguments: Callable[[Bucket, Path], list[str]]

    def path(self) -> str | None:
        """Path of the program: on the PATH, or next to the interpreter, where packages install theirs."""
        beside = Path(sys.executable).parent / self.program
        return shutil.which(self.program) or (str(beside) if os.access(beside, os.X_OK) else None)


def _mountpoint(bucket: Bucket, folder: Path) -> list[str]:
    options = bucket.options
    words = [bucket.name, str(folder), "--read-only"]
    if bucket.prefix:
        words += ["--prefix", f"{bucket.prefix}/"]
    if options.endpoint:
        words += ["--endpoint-url", options.endpoint, "--force-path-style"]
    if options.region:
        words += ["--region", options.region]
    return [*words, "--no-sign-request"] if options.anonymous else words


def _geesefs(bucket: Bucket, folder: Path) -> list[str]:
    options = bucket.options
    words = ["-o", "ro"]
    if options.endpoint:
        words += ["--endpoint", options.endpoint]
    if options.region:
        words += ["--region", options.region]
    return [*words, f"{bucket.name}:{bucket.prefix}" if bucket.prefix else bucket.name, str(folder)]


def _rclone(bucket: Bucket, folder: Path) -> list[str]:
    options = bucket.options
    words = ["mount", f":s3:{bucket.name}/{bucket.prefix}".rstrip("/"), str(folder)]
    # No configuration file: it may hold another remote of the same name.
    words += ["--config", "", "--read-only", "--daemon", "--daemon-wait", "30s"]
    words += ["--dir-cache-time", "1h", "--attr-timeout", "1h", "--no-modtime"]
    words += ["--s3-provider", "Other" if options.endpoint else "AWS"]
    if not options.anonymous:
        words += ["--s3-env-auth"]
    if options.endpoint:
        words += ["--s3-endpoint", options.endpoint]
    if options.region:
        words += ["--s3-region", options.region]
    return words


def _s3fs(bucket: Bucket, folder: Path) -> list[str]:
    options = bucket.options
    name = f"{bucket.name}:/{bucket.prefix}" if bucket.prefix else bucket.name
    words = [name, str(folder), "-o", "ro", "-o", "enable_noobj_cache"]
    if re.search(r"\bcompat_dir\b", _s3fs_help()):
        # Folders are prefixes of keys, with or without a marker object; before 1.91 that needs no option.
        words += ["-o", "compat_dir"]
    if options.endpoint:
        words += ["-o", f"url={options.endpoint}", "-o", "use_path_request_style"]
    if options.region:
        words += ["-o", f"endpoint={options.region}"]
    if options.anonymous:
        words += ["-o", "public_bucket=1"]
    elif options.profile:
        words += ["-o", f"profile={options.profile}"]
    return words


def _s3fs_help() -> str:
    try:
        return subprocess.run(["s3fs", "--help"], capture_output=True, text=True, timeout=10, check=False).stdout
    except (OSError, subprocess.TimeoutExpired):
        return ""


# The first one installed that works is used. Mountpoint and GeeseFS read ahead and in parallel; s3fs asks most often.
TOOLS = (
    Tool("mountpoint-s3", "mount-s3", _mountpoint),
    Tool("geesefs", "geesefs", _geesefs),
    Tool("rclone", "rclone", _rclone),
    Tool("s3fs", "s3fs", _s3fs),
)


def environment(options: StoreOptions, keys: Mapping[str, str]) -> dict[str, str]:
    """The environment of a mount: this one, with the profile's keys where it has some.

    Args:
        options: how the bucket is reached.
        keys: of the profile, as returned by ``profile_credentials``.
    """
    found = dict(os.environ)
    if options.profile:
        found["AWS_PROFILE"] = options.profile
    for ours, theirs in (
        ("access_key_id", "AWS_ACCESS_KEY_ID"),
        ("secret_access_key", "AWS_SECRET_ACCESS_KEY"),
        ("session_token", "AWS_SESSION_TOKEN"),
        ("region", "AWS_REGION"),
    ):
        if ours in keys:
            found[theirs] = keys[ours]
    # The older names, which s3fs reads.
    for theirs, old in (("AWS_ACCESS_KEY_ID", "AWSACCESSKEYID"), ("AWS_SECRET_ACCESS_KEY", "AWSSECRETACCESSKEY")):
        if theirs in found:
            found[old] = found[theirs]
    return found
