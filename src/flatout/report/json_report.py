"""The report as JSON, schema 1 (docs/schema/report.schema.json), and its way back to a diagnosis."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from flatout.errors import UsageError
from flatout.results import (
    Account,
    Cause,
    Diagnosis,
    Epoch,
    Evidence,
    Finding,
    Gain,
    Ledger,
    Line,
    NotMeasured,
    Remedy,
    RemedyBundle,
    Steps,
)

SCHEMA = 1


def diagnosis_to_json(diagnosis: Diagnosis) -> dict[str, Any]:
    """Turn a diagnosis into plain JSON data. A number that is not finite becomes null: JSON has no NaN."""
    data = {
        "schema": SCHEMA,
        "verdict": diagnosis.verdict,
        "run": {
            "id": diagnosis.run_id,
            "path": diagnosis.run_path,
            "command": diagnosis.command,
            "stop": diagnosis.stop,
            "exit_code": diagnosis.exit_code,
            "failure": diagnosis.failure,
        },
        "machine": diagnosis.machine,
        "ledger": asdict(diagnosis.ledger) if diagnosis.ledger else None,
        "causes": [asdict(cause) for cause in diagnosis.causes],
        "not_measured": [asdict(one) for one in diagnosis.not_measured],
        "remedies": [_remedy_to_json(remedy) for remedy in diagnosis.remedies],
        "findings": [asdict(finding) for finding in diagnosis.findings],
        "plans": [asdict(plan) for plan in diagnosis.plans],
        "loader": diagnosis.loader,
        "problems": diagnosis.problems,
        "next_command": diagnosis.next_command,
    }
    plain: dict[str, Any] = _finite(data)
    return plain


def render_json(diagnosis: Diagnosis) -> str:
    """Write the report as indented JSON in ASCII, so that it passes through any terminal or pipe."""
    return json.dumps(diagnosis_to_json(diagnosis), indent=2, allow_nan=False)


def diagnosis_from_json(data: Any, *, origin: str = "report") -> Diagnosis:
    """Rebuild the diagnosis that a JSON report was made from.

    Null is read back as None where that is allowed, and as NaN where a number is expected.

    Args:
        data: What ``json.loads`` returned.
        origin: What an error calls the report, such as its path.

    Raises:
        UsageError: Not a report, of another schema, or with a part missing.
    """
    if not isinstance(data, dict) or "schema" not in data:
        raise UsageError(f"{origin}: not a flatout report; write one with `flatout report RUN --json`")
    if data["schema"] != SCHEMA:
        raise UsageError(
            f"{origin}: schema {data['schema']!r}; this flatout reads schema {SCHEMA}: write the report again"
        )
    try:
        return Diagnosis(
            run_id=data["run"]["id"],
            run_path=data["run"]["path"],
            command=tuple(data["run"]["command"]),
            verdict=data["verdict"],
            ledger=_ledger(data["ledger"]) if data["ledger"] is not None else None,
            causes=tuple(_cause(cause) for cause in data["causes"]),
            not_measured=tuple(NotMeasured(**one) for one in data["not_measured"]),
            remedies=tuple(_remedy(remedy) for remedy in data["remedies"]),
            problems=tuple(data["problems"]),
            next_command=data["next_command"],
            machine=data["machine"],
            findings=tuple(Finding(**{**one, "evidence": _evidence(one)}) for one in data["findings"]),
            plans=tuple(_plan(plan) for plan in data["plans"]),
            loader=dict(data["loader"]),
            stop=data["run"].get("stop"),  # a report that an earlier version saved does not say
            exit_code=data["run"].get("exit_code"),
            failure=data["run"].get("failure"),
        )
    except KeyError as error:
        raise UsageError(f"{origin}: damaged: {error} is missing; write the report again") from error
    except (TypeError, AttributeError) as error:
        raise UsageError(f"{origin}: damaged: {error}; write the report again") from error


def read_report(path: Path) -> Diagnosis:
    """Read a report that was saved as JSON.

    Raises:
        UsageError: The file cannot be read, is not JSON, or is not such a report.
    """
    try:
        data = json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{path}: cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{path}: not JSON ({error}); write one with `flatout report RUN --json`") from error
    except RecursionError:
        raise UsageError(f"{path}: nested too deeply; write one with `flatout report RUN --json`") from None
    return diagnosis_from_json(data, origin=str(path))


def _finite(value: Any) -> Any:
    """Copy JSON data with plain numbers for numpy's, lists for tuples, and null for NaN and infinities."""
    if isinstance(value, Integral) and not isinstance(value, bool):
        return int(value)
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(one) for one in value]
    return value


def _remedy_to_json(remedy: Remedy) -> dict[str, Any]:
    """Write a remedy under its published names: "class" is a reserved word in Python, bytes are the schema's unit."""
    data = asdict(remedy)
    return {
        "id": data["id"],
        "cause": data["cause"],
        "title": data["title"],
        "class": data["semantic_class"],
        "risk": data["risk"],
        "gain": data["gain"],
        "memory_bytes": data["memory_bytes"],
        "how": data["how"],
        "basis": data["basis"],
        "settings": data["settings"],
        "shm": data["shm_bytes"],
        "device_memory": data["device_bytes"],
        "adds_nothing_to": data["adds_nothing_to"],
    }


def _remedy(data: dict[str, Any]) -> Remedy:
    return Remedy(
        id=data["id"],
        cause=data["cause"],
        title=data["title"],
        semantic_class=data["class"],
        risk=data["risk"],
        gain=Gain(**_numbers(data["gain"])),
        memory_bytes=data["memory_bytes"],
        how=data["how"],
        basis=data["basis"],
        settings=dict(data["settings"]),
        shm_bytes=data["shm"],
        device_bytes=data["device_memory"],
        adds_nothing_to=data.get("adds_nothing_to", ""),
    )


def _plan(data: dict[str, Any]) -> RemedyBundle:
    return RemedyBundle(**{**data, "remedies": tuple(data["remedies"]), "gain": Gain(**_numbers(data["gain"]))})


def _cause(data: dict[str, Any]) -> Cause:
    return Cause(**{**_numbers(data, "share", "confidence"), "evidence": _evidence(data)})


def _evidence(data: dict[str, Any]) -> tuple[Evidence, ...]:
    return tuple(
        Evidence(one["text"], {name: math.nan if value is None else value for name, value in one["values"].items()})
        for one in data["evidence"]
    )


def _ledger(data: dict[str, Any]) -> Ledger:
    numbers = _numbers(data, "wall_s", "startup_s", "window_s", "unaccounted_s", "ending_s")
    return Ledger(
        **{
            **numbers,
            "startup": tuple(_account(one) for one in data["startup"]),
            "accounts": tuple(_account(one) for one in data["accounts"]),
            "epochs": tuple(_epoch(one) for one in data["epochs"]),
            "steps": Steps(**_numbers(data["steps"])),
            "notes": tuple(data["notes"]),
        }
    )


def _account(data: dict[str, Any]) -> Account:
    children = tuple(_account(child) for child in data["children"])
    lines = tuple(Line(**_numbers(line, "seconds")) for line in data["lines"])
    return Account(**{**_numbers(data, "seconds", "share"), "children": children, "lines": lines})


def _epoch(data: dict[str, Any]) -> Epoch:
    return Epoch(**{**_numbers(data, "seconds"), "shares": _numbers(data["shares"])})


def _numbers(data: dict[str, Any], *names: str) -> dict[str, Any]:
    """Copy with NaN for null in the fields that hold numbers: the named ones, or all."""
    return {name: math.nan if value is None and (not names or name in names) else value for name, value in data.items()}
