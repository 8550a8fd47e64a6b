"""Keys of the role of a pod, a container or an instance, by the addresses that AWS gives there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

from flatout.errors import UsageError
from flatout.stage.aws_credentials import Keys, keys_from
from flatout.stage.store_xml import parse, text_of

CONTAINER = "http://169.254.170.2"
INSTANCE = "http://169.254.169.254"
ANSWER_S = 2.0  # elsewhere than at AWS nobody answers
STS_S = 10.0
_INSIDE = ("169.254.170.2", "169.254.170.23", "fd00:ec2::23", "localhost", "127.0.0.1", "::1")


def web_identity_keys(region: str | None) -> Keys | None:
    """Keys of a role by a token in a file, as Kubernetes gives to pods; None where there is no such file."""
    file, role = os.environ.get("AWS_WEB_IDENTITY_TOKEN_FILE"), os.environ.get("AWS_ROLE_ARN")
    if not file or not role:
        return None
    try:
        token = Path(file).read_text("utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"AWS_WEB_IDENTITY_TOKEN_FILE={file}: {error}") from None
    wanted = {
        "Action": "AssumeRoleWithWebIdentity", "Version": "2011-06-15", "RoleArn": role,
        "RoleSessionName": os.environ.get("AWS_ROLE_SESSION_NAME") or "flatout", "WebIdentityToken": token,
    }  # fmt: skip
    host = f"sts.{region}.amazonaws.com" if region else "sts.amazonaws.com"
    url = os.environ.get("AWS_ENDPOINT_URL_STS") or f"https://{host}"
    content = {"Content-Type": "application/x-www-form-urlencoded"}
    status, body = _ask("POST", f"{url.rstrip('/')}/", content, STS_S, urlencode(wanted).encode())
    found = parse(body) if status == 200 else None
    names = ("AccessKeyId", "SecretAccessKey", "SessionToken", "Expiration")
    values = [None if found is None else text_of(found, f".//{name}") for name in names]
    if not values[0] or not values[1]:
        raise UsageError(f"AWS_ROLE_ARN={role}: the role was not given (HTTP status {status})")
    from datetime import datetime

    expires = datetime.fromisoformat(values[3]).timestamp() if values[3] else None
    return Keys(values[0], values[1], values[2] or None, expires)


def container_keys() -> Keys | None:
    """Keys of a container's role (ECS, EKS); None where no address is given."""
    relative, full = (os.environ.get(f"AWS_CONTAINER_CREDENTIALS_{kind}_URI") for kind in ("RELATIVE", "FULL"))
    if not relative and not full:
        return None
    url = f"{CONTAINER}{relative}" if relative else str(full)
    parts = urlsplit(url)
    if parts.scheme != "https" and parts.hostname not in _INSIDE:
        raise UsageError("AWS_CONTAINER_CREDENTIALS_FULL_URI: only https, or an address of this machine, is asked")
    token = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    file = os.environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")
    if file:
        try:
            token = Path(file).read_text("utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE={file}: {error}") from None
    status, body = _ask("GET", url, {"Authorization": token} if token else {}, ANSWER_S)
    keys = keys_from(body, "Token") if status == 200 else None
    if keys is None:
        raise UsageError(f"the container's role gave no keys (HTTP status {status})")
    return keys


def instance_keys() -> Keys | None:
    """Keys of the instance's role (EC2, with a session token of IMDSv2); None where there is none."""
    if os.environ.get("AWS_EC2_METADATA_DISABLED", "").lower() == "true":
        return None
    server = (os.environ.get("AWS_EC2_METADATA_SERVICE_ENDPOINT") or INSTANCE).rstrip("/")
    path = f"{server}/latest/meta-data/iam/security-credentials/"
    status, token = _ask("PUT", f"{server}/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "300"}, ANSWER_S)
    if status != 200:
        return None
    headers = {"X-aws-ec2-metadata-token": token.decode("ascii", "replace").strip()}
    status, role = _ask("GET", path, headers, ANSWER_S)
    if status != 200 or not role.strip():
        return None
    name = quote(role.decode("utf-8", "replace").splitlines()[0].strip())
    status, body = _ask("GET", f"{path}{name}", headers, ANSWER_S)
    return keys_from(body, "Token") if status == 200 else None


def _ask(
    method: str, url: str, headers: Mapping[str, str], seconds: float, content: bytes | None = None
) -> tuple[int, bytes]:
    """Status and body; 0 where nobody answers. Neither a proxy nor a redirect gets to see a token."""
    import urllib3

    with urllib3.PoolManager(retries=urllib3.Retry(1, redirect=False, status=False), timeout=seconds) as pool:
        try:
            answer = pool.request(method, url, headers=dict(headers), body=content, redirect=False)
        except (urllib3.exceptions.HTTPError, ValueError):
            return 0, b""
        return answer.status, answer.data
