"""What foreign logs say, as JSON, schema 1 (docs/schema/read.schema.json)."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from flatout.logs.claims import Claim
from flatout.logs.observations import Source
from flatout.logs.postmortem import Epoch, FileResult, Postmortem
from flatout.report.logs import verdict

SCHEMA = 1


def to_dict(read: Postmortem) -> dict[str, Any]:
    """For ``--json``: docs/schema/read.schema.json."""
    return {
        "schema": SCHEMA,
        "source": "log",
        "verdict": verdict(read),
        "files": [_file_dict(one) for one in read.files],
        "joined": [asdict(one) for one in read.joined],
        "claims": [_claim_dict(one) for one in read.claims],
        "unknown": [asdict(one) for one in read.unknown],
        "command": read.command,
    }


def _file_dict(result: FileResult) -> dict[str, Any]:
    facts = result.facts
    return {
        "file": facts.file,
        "format": facts.format,
        "bytes": facts.bytes,
        "observations": facts.observations,
        "notes": list(facts.notes),
        "from_s": facts.from_s,
        "to_s": facts.to_s,
        "settings": {
            name: [{"value": one.value, "phase": one.phase or None, "line": one.source.line} for one in values]
            for name, values in facts.settings.items()
        },
        "devices": [{"name": one.name, "seen": one.phase == "seen", "line": one.source.line} for one in facts.devices],
        "epochs": [_epoch_dict(one) for one in result.epochs],
        "cold": None if result.cold is None else {**asdict(result.cold), "ratio": result.cold.ratio},
        "projection": _projection_dict(result),
        "metrics": {
            name: {
                "first": one.first,
                "last": one.last,
                "min": one.least,
                "max": one.most,
                "count": one.count,
                "line": one.source.line,
            }
            for name, one in facts.metrics.items()
        },
        "totals": [{**one.values, "line": one.source.line} for one in facts.totals],
        "jobs": [{**one.labels, **one.values} for one in facts.jobs],
        "usage": {
            name: {
                "mean": one.mean,
                "min": one.least,
                "max": one.most,
                "count": one.count,
                "idle": one.idle / one.count,
            }
            for name, one in facts.usage.items()
        },
        "troubles": [{"what": one.what, **_source_dict(one.source)} for one in facts.troubles],
    }


def _epoch_dict(one: Epoch) -> dict[str, Any]:
    time = one.time
    return {
        "epoch": time.epoch,
        "seconds": time.seconds,
        "steps": time.steps,
        "begin": time.begin,
        "total": time.total,
        "complete": time.complete,
        "rate_sps": one.rate_sps,
        "printed_its": time.its,
        "waiting": time.waiting,
        "of": time.of,
        "line": time.source.line,
    }


def _projection_dict(result: FileResult) -> dict[str, Any] | None:
    one = result.projection
    if one is None:
        return None
    found = {name: value for name, value in asdict(one).items() if name != "source"}
    return {**found, "line": one.source.line}


def _claim_dict(one: Claim) -> dict[str, Any]:
    return {
        "id": one.id,
        "verdict": one.verdict,
        "said": one.said,
        "found": one.found,
        "off_by": one.off_by,
        "sources": [_source_dict(source) for source in one.sources],
    }


def _source_dict(source: Source) -> dict[str, Any]:
    return {"file": source.file, "line": source.line, "text": source.text}
