"""Keys for S3, looked for where AWS's own tools look: environment, profiles, a program, the container, the instance."""

from __future__ import annotations

import configparser
import json
import os
import shlex
import subprocess
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from flatout.errors import UsageError

REFRESH_BEFORE_S = 300.0  # keys are replaced so long before they end
PROGRAM_S = 60.0  # that a credential_process may take
_BY_BOTOCORE = ("sso_session", "sso_start_url", "role_arn", "login_session")  # profiles that need more than a file


@dataclass(frozen=True)
class Keys:
    """Keys that requests are signed with.

    Attributes:
        expires: seconds since 1970; None: they do not end.
    """

    access: str
    secret: str
    token: str | None = None
    expires: float | None = None

    def __repr__(self) -> str:  # what shows an object in an error must not show a key
        return "Keys(…)"


class Credentials:
    """Gives keys that are valid now; from several threads at once."""

    def __init__(self, profile: str | None, region: str | None) -> None:
        """Find keys.

        Args:
            profile: its name; None: the environment's keys, else ``AWS_PROFILE`` or ``default``, else the role of the
                container or the instance.
            region: where a role is asked for.

        Raises:
            UsageError: there are none; it says where they were looked for.
        """
        self._fresh = threading.Lock()
        self._find, self._keys = _find(profile, region)

    def keys(self) -> Keys:
        """Keys that are valid for some minutes at least; raises UsageError where they cannot be replaced."""
        if _ends_soon(self._keys):
            with self._fresh:
                if _ends_soon(self._keys):
                    self._keys = self._find() or self._keys
        return self._keys


def settings(profile: str | None) -> Mapping[str, str]:
    """What the AWS configuration files say of a profile, such as its region; empty where there is none of the name."""
    home = Path.home() / ".aws"
    name = profile or os.environ.get("AWS_PROFILE") or "default"
    found: dict[str, str] = {}
    for variable, file, section in (
        ("AWS_CONFIG_FILE", home / "config", f"profile {name}"),
        ("AWS_SHARED_CREDENTIALS_FILE", home / "credentials", name),
    ):
        path = Path(os.environ.get(variable) or file).expanduser()
        parser = configparser.RawConfigParser(strict=False, default_section="")
        try:
            parser.read(path, "utf-8")
        except (configparser.Error, OSError, UnicodeDecodeError) as error:
            what = type(error).__name__ if isinstance(error, configparser.Error) else error
            raise UsageError(f"{path}: the AWS configuration cannot be read: {what}") from None
        for candidate in (section, name):
            if parser.has_section(candidate):
                found.update(parser.items(candidate))
    return found


def profile_credentials(name: str | None) -> dict[str, str]:
    """Keys, region and endpoint of a profile, by the names that mounts use; empty without a name.

    Raises:
        UsageError: no such profile, or one without keys.
    """
    if name is None:
        return {}
    keys = Credentials(name, None).keys()
    found = {"access_key_id": keys.access, "secret_access_key": keys.secret, "session_token": keys.token or ""}
    known = settings(name)
    found.update({"region": known.get("region", ""), "endpoint": known.get("endpoint_url", "")})
    return {key: value for key, value in found.items() if value}


def _ends_soon(keys: Keys) -> bool:
    return keys.expires is not None and keys.expires - time.time() < REFRESH_BEFORE_S


def _find(profile: str | None, region: str | None) -> tuple[Callable[[], Keys | None], Keys]:
    from flatout.stage.aws_roles import container_keys, instance_keys, web_identity_keys

    name = profile or os.environ.get("AWS_PROFILE") or "default"
    ways: list[Callable[[], Keys | None]]
    if profile is not None:
        ways = [lambda: _profile_keys(name)]
    else:
        ways = [
            _environment_keys, lambda: _profile_keys(name), lambda: web_identity_keys(region),
            container_keys, instance_keys,
        ]  # fmt: skip
    for way in ways:
        keys = way()
        if keys is not None:
            return way, keys
    if profile is not None or "AWS_PROFILE" in os.environ:
        option = f"--profile {name}" if profile is not None else f"AWS_PROFILE={name}"
        raise UsageError(f"{option}: no such profile with keys in the AWS configuration files")
    raise UsageError(
        "no credentials for S3: looked at AWS_ACCESS_KEY_ID, the profile 'default' in the AWS configuration files, and "
        "the role of this container or instance: give --profile, set keys, or --anonymous for a public bucket"
    )


def _environment_keys() -> Keys | None:
    access, secret = os.environ.get("AWS_ACCESS_KEY_ID"), os.environ.get("AWS_SECRET_ACCESS_KEY")
    if not access:
        return None
    if not secret:
        raise UsageError("AWS_ACCESS_KEY_ID is set and AWS_SECRET_ACCESS_KEY is not: set both, or neither")
    return Keys(access, secret, os.environ.get("AWS_SESSION_TOKEN") or None)


def _profile_keys(name: str) -> Keys | None:
    known = settings(name)
    if known.get("aws_access_key_id") and known.get("aws_secret_access_key"):
        token = known.get("aws_session_token") or None
        return Keys(known["aws_access_key_id"], known["aws_secret_access_key"], token)
    if known.get("credential_process"):
        return _program_keys(name, known["credential_process"])
    if any(setting in known for setting in _BY_BOTOCORE):
        return _botocore_keys(name)
    return None


def _program_keys(name: str, command: str) -> Keys:
    """Keys that a program prints; neither they nor its errors, which may hold them, are shown."""
    try:
        words = shlex.split(command)
        ended = subprocess.run(words, capture_output=True, timeout=PROGRAM_S, check=False, stdin=subprocess.DEVNULL)
    except (OSError, ValueError, IndexError, subprocess.TimeoutExpired) as error:
        why = "took more than a minute" if isinstance(error, subprocess.TimeoutExpired) else "cannot be run"
        raise UsageError(f"profile {name}: its credential_process {why}") from None
    if ended.returncode:
        raise UsageError(f"profile {name}: its credential_process ended with exit code {ended.returncode}")
    keys = keys_from(ended.stdout, "SessionToken")
    if keys is None:
        raise UsageError(f"profile {name}: its credential_process printed no keys (JSON with AccessKeyId …)")
    return keys


def keys_from(text: bytes, token: str) -> Keys | None:
    """Keys in a JSON object as AWS's programs and servers print them; None where it is none."""
    try:
        found: dict[str, Any] = json.loads(text)
        ends = found.get("Expiration")
        expires = datetime.fromisoformat(ends).timestamp() if ends else None
        return Keys(str(found["AccessKeyId"]), str(found["SecretAccessKey"]), found.get(token) or None, expires)
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _botocore_keys(name: str) -> Keys:
    """Keys of a profile that signs in (SSO) or takes a role: AWS's own library knows how."""
    try:
        from botocore.session import Session
    except ImportError:
        raise UsageError(
            f"profile {name}: signing in (SSO) or taking a role needs AWS's library: pip install boto3; "
            "or set the keys that `aws configure export-credentials` prints"
        ) from None
    try:
        found = Session(profile=name).get_credentials()
        frozen = found.get_frozen_credentials()
    except Exception as error:  # botocore has dozens, and says what to do: `aws sso login`
        raise UsageError(f"profile {name}: {error}") from None
    expires = getattr(found, "_expiry_time", None)
    return Keys(frozen.access_key, frozen.secret_key, frozen.token, expires.timestamp() if expires else None)
