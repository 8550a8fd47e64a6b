"""The address of a bucket: name, prefix, server and region; never holds secrets."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from flatout.errors import UsageError
from flatout.stage.sources.base import StoreOptions
from flatout.stage.sources.s3.credentials import settings

_BUCKET = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_HOST_NAME = re.compile(r"[a-z0-9][a-z0-9-]{1,61}[a-z0-9]")  # a bucket that can be part of one, with a certificate
_SIGNED = re.compile(r"[?&](X-Amz-[A-Za-z-]+|X-Goog-[A-Za-z-]+|AWSAccessKeyId|Signature|sig)=", re.I)
FIRST_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Address:
    """A bucket, or a part of it.

    Attributes:
        shown: as the user wrote it, without slashes at its end.
        bucket: its name.
        prefix: without slashes at its ends; empty: the whole bucket.
        is_folder: the address ended with a slash, so it is not one object.
        endpoint: server, and a path if it has one; None: Amazon's.
        region: that requests are signed for, until the server names another.
    """

    shown: str
    bucket: str
    prefix: str
    is_folder: bool
    endpoint: str | None
    region: str

    @staticmethod
    def of(address: str, options: StoreOptions) -> S3Address:
        """The place that an address names: all behind the bucket is the prefix, ``#`` and ``?`` too.

        Raises:
            UsageError: no bucket, credentials in an address, or an invalid endpoint.
        """
        scheme, _, rest = address.partition("://")
        bucket, _, prefix = rest.partition("/")
        if "@" in bucket:
            raise UsageError(
                f"{scheme}://…: credentials do not belong into an address: use --profile or the environment"
            )
        if _SIGNED.search(address):
            raise UsageError(
                f"{scheme}://{bucket}/…: a signature does not belong into an {scheme}:// address: "
                "use --profile or the environment, or the signed https:// address of one file"
            )
        if not _BUCKET.fullmatch(bucket):
            raise UsageError(f"{address!r}: {bucket!r} cannot be the name of a bucket: {scheme}://bucket/prefix")
        profile: Mapping[str, str] = {} if options.anonymous else settings(options.profile)
        endpoint = (
            options.endpoint
            or os.environ.get("AWS_ENDPOINT_URL_S3")
            or os.environ.get("AWS_ENDPOINT_URL")
            or profile.get("endpoint_url")
        )
        region = options.region or (profile.get("region") if options.profile else None)
        region = region or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
        return S3Address(
            shown=address.rstrip("/"),
            bucket=bucket,
            prefix=prefix.strip("/"),
            is_folder=prefix.endswith("/"),
            endpoint=checked_endpoint(endpoint) if endpoint else None,
            region=region or profile.get("region") or FIRST_REGION,
        )

    def server(self, region: str) -> tuple[str, str]:
        """Server (``scheme://host``) and the path of the bucket on it."""
        if self.endpoint is not None:
            scheme, _, rest = self.endpoint.partition("://")
            host, _, path = rest.partition("/")
            return f"{scheme}://{host}", f"/{path}/{self.bucket}" if path else f"/{self.bucket}"
        domain = f"s3.{region}.amazonaws.com" + (".cn" if region.startswith("cn-") else "")
        if _HOST_NAME.fullmatch(self.bucket):
            return f"https://{self.bucket}.{domain}", ""
        return f"https://{domain}", f"/{self.bucket}"


def checked_endpoint(url: str) -> str:
    """An endpoint as requests need it: no slash at its end, the host in lower case, no port that is the usual one.

    Raises:
        UsageError: not the address of a server, or it holds credentials, which are not shown.
    """
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError:
        raise UsageError("--endpoint: no address of a server: give http://host:port or https://host") from None
    if parts.username is not None or parts.password is not None:
        raise UsageError(
            f"--endpoint {parts.scheme}://…@{host}: credentials do not belong into an address: "
            "use --profile or the environment"
        )
    if parts.query or parts.fragment or parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"--endpoint {url.partition('?')[0]}: give http://host:port or https://host")
    if ":" in host:
        host = f"[{host}]"
    if port is not None and port != {"http": 80, "https": 443}[parts.scheme]:
        host = f"{host}:{port}"
    return f"{parts.scheme}://{host}{parts.path.rstrip('/')}"
