"""The client library that fetches the data, recognised in the stacks of blocked fetches."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

# Tried from top to bottom on the whole stack: a store's own library stands above the HTTP library that it uses.
_CLIENTS = (
    ("s3torchconnector (S3)", r"/s3torchconnector"),
    ("s3fs (S3)", r"/s3fs/"),
    ("boto3 (S3)", r"/(boto3|botocore|s3transfer)/"),
    ("gcsfs (GCS)", r"/gcsfs/"),
    ("google-cloud-storage (GCS)", r"/google/cloud/storage/"),
    ("adlfs (Azure)", r"/adlfs/"),
    ("azure-storage (Azure)", r"/azure/storage/"),
    ("obstore", r"/obstore/"),
    ("huggingface_hub", r"/huggingface_hub/"),
    ("webdataset", r"/webdataset/"),
    ("fsspec", r"/fsspec/"),
    ("requests (HTTP)", r"/requests/"),
    ("httpx (HTTP)", r"/httpx2?/"),
    ("aiohttp (HTTP)", r"/aiohttp/"),
    ("urllib3 (HTTP)", r"/urllib3/"),
    ("urllib (HTTP)", r"/urllib/request\.py$"),
    ("http.client (HTTP)", r"/http/client\.py$"),
    ("paramiko (SFTP)", r"/paramiko/"),
)
_COMPILED = tuple((name, re.compile(pattern)) for name, pattern in _CLIENTS)


def client_of(frames: Sequence[Sequence[Any]]) -> str | None:
    """The library that a stack reads a remote store with; None: none that is known, or a file system.

    Args:
        frames: as for ``function_group``.
    """
    paths = [str(frame[0]).replace("\\", "/") for frame in frames]
    return next((name for name, pattern in _COMPILED if any(pattern.search(path) for path in paths)), None)
