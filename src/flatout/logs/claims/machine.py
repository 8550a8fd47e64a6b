"""Claims about the machine and the settings: planned against seen, assumed against logged."""

from __future__ import annotations

import re

from flatout.logs.claims.verdict import Claim
from flatout.logs.facts import Device, FileFacts
from flatout.logs.readers.prose import DEVICES

_ASSUMED = re.compile(
    r"(?i)\b(?:likely|probably|presumably|assume\w*|assuming|assumption|perhaps|guess\w*|maybe|i think|seems?)\b"
)
_SETTING = re.compile(
    r"(?i)\b(num_workers|workers|prefetch_factor|pin_memory|batch_size|persistent_workers|channels_last)\s*[=:]\s*(\w+)"
)
_KEYS = {"num_workers": "workers", "prefetch_factor": "prefetch"}


def devices(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """The device that a plan is for, against the one that the run saw."""
    seen = next((one for one in facts.devices if one.phase == "seen"), None)
    if seen is None:
        return []
    planned = next((one for one in facts.devices if one.phase != "seen" and _model(one) != _model(seen)), None)
    if planned is None:
        return []
    found = f"the run saw {seen.name}: its times and memory are not those of {planned.name}"
    return [Claim("devices", "off", f"planned for {planned.name}", found, (planned.source, seen.source))]


def _model(device: Device) -> str:
    found = DEVICES.search(device.name)
    name = found[1] if found else device.name
    return re.sub(r"[\s-]", "", name).upper()


def assumed_settings(facts: FileFacts, _: list[FileFacts]) -> list[Claim]:
    """A setting that is said to be likely, and that no line shows."""
    claims = []
    for one in facts.statements:
        setting = _SETTING.search(one.said)
        if setting is None or not _ASSUMED.search(one.said):
            continue
        key = _KEYS.get(setting[1].lower(), setting[1].lower())
        shown = [s for s in facts.settings.get(key, ()) if s.phase == "seen"]
        if shown:
            continue
        found = "assumed: no line of the log shows it; `flatout profile -- COMMAND` reads it from the loader"
        claims.append(Claim("assumed_settings", "unknown", setting[0], found, (one.source,)))
    return claims
