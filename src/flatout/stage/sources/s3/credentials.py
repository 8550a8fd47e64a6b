"""Keys for S3, found by AWS's own library: environment, profiles, sign-in (SSO), a program, roles."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flatout.errors import UsageError

INSTANCE_S = 2  # outside AWS nothing answers


@dataclass(frozen=True)
class Keys:
    """Keys that requests are signed with."""

    access: str
    secret: str
    token: str | None = None

    def __repr__(self) -> str:  # an object shown in an error must not reveal a key
        return "Keys(…)"


class Credentials:
    """Provides keys that are valid now; thread-safe."""

    def __init__(self, profile: str | None) -> None:
        """Find keys.

        Args:
            profile: its name; None: the environment's keys, else ``AWS_PROFILE`` or ``default``, else the role of the
                container or the instance.

        Raises:
            UsageError: no credentials found; the message lists the places searched.
        """
        self._profile = profile
        session = _session(profile)
        try:
            self._found = session.get_credentials()
        except Exception as error:  # botocore has dozens
            raise _refused(error, profile) from None
        if self._found is not None:
            return
        if profile is not None or "AWS_PROFILE" in os.environ:
            raise UsageError(f"{_named(profile)}: no such profile with keys in the AWS configuration files")
        raise UsageError(
            "no credentials for S3: looked at AWS_ACCESS_KEY_ID, the profile 'default' in the AWS configuration files, "
            "and the role of this container or instance: give --profile, set keys, or --anonymous for a public bucket"
        )

    def keys(self) -> Keys:
        """Keys that are valid for some minutes at least; raises UsageError if they cannot be replaced."""
        try:
            frozen = self._found.get_frozen_credentials()
        except Exception as error:
            raise _refused(error, self._profile) from None
        return Keys(frozen.access_key, frozen.secret_key, frozen.token)


def settings(profile: str | None) -> Mapping[str, str]:
    """The AWS configuration files' settings of a profile, such as its region; empty if there is no such profile."""
    from botocore.exceptions import ProfileNotFound

    try:
        found: dict[str, Any] = _session(profile).get_scoped_config()
    except ProfileNotFound:
        return {}
    except Exception as error:
        raise _refused(error, profile) from None
    return {name: value for name, value in found.items() if isinstance(value, str)}


def profile_credentials(name: str | None) -> dict[str, str]:
    """Keys, region and endpoint of a profile, by the names that mounts use; empty without a name.

    Raises:
        UsageError: no such profile, or one without keys.
    """
    if name is None:
        return {}
    keys = Credentials(name).keys()
    found = {"access_key_id": keys.access, "secret_access_key": keys.secret, "session_token": keys.token or ""}
    known = settings(name)
    found.update({"region": known.get("region", ""), "endpoint": known.get("endpoint_url", "")})
    return {key: value for key, value in found.items() if value}


def _session(profile: str | None) -> Any:
    from botocore.session import Session

    session = Session(profile=profile)
    if "AWS_METADATA_SERVICE_TIMEOUT" not in os.environ:
        session.set_config_variable("metadata_service_timeout", INSTANCE_S)
    return session


def _named(profile: str | None) -> str:
    return f"--profile {profile}" if profile is not None else f"AWS_PROFILE={os.environ.get('AWS_PROFILE', 'default')}"


def _refused(error: Exception, profile: str | None) -> UsageError:
    """One line for an exception of botocore; what a program printed is not in it: it may hold a key."""
    from botocore import exceptions as known

    if isinstance(error, known.ProfileNotFound):
        return UsageError(f"{_named(profile)}: no such profile with keys in the AWS configuration files")
    if isinstance(error, known.PartialCredentialsError):
        missing = error.kwargs.get("cred_var", "a part of them")
        return UsageError(f"the keys for S3 are incomplete: {missing} is missing: set both keys, or neither")
    if isinstance(error, known.CredentialRetrievalError) and error.kwargs.get("provider") == "custom-process":
        return UsageError(
            f"profile {profile or os.environ.get('AWS_PROFILE', 'default')}: its credential_process gave no keys; "
            "run it by itself to see why"
        )
    if isinstance(error, known.ConfigParseError):
        return UsageError(f"{error.kwargs.get('path')}: the AWS configuration cannot be read")
    if isinstance(error, known.BotoCoreError):
        return UsageError(f"no credentials for S3: {error}")
    return UsageError(f"no credentials for S3: {type(error).__name__} while looking for them")
