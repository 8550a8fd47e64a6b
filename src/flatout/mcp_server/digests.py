"""What of a result an answer of 4 kB holds: sentences and figures of a report instead of its whole tree."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from flatout.units import factor, percent

_CAUSES, _REMEDIES, _EVIDENCE, _ACCOUNTS = 5, 6, 3, 10
_TEXT = 220  # characters of a sentence


def digest(tool: str, whole: Any) -> Any:
    """The part of a tool's result that an answer shows; the resource has all of it.

    Args:
        tool: that was called.
        whole: what ``--json`` printed.
    """
    if tool in ("profile", "report") and isinstance(whole, dict) and isinstance(whole.get("causes"), list):
        return _report(whole)
    return whole


def sentence(tool: str, whole: Any) -> str:
    """The result in a sentence, where the tool has none of its own; empty: nothing is known."""
    if tool != "train" or not isinstance(whole, dict) or not whole.get("epochs"):
        return ""
    best = whole.get("best_epoch")
    scores = {name: value for name, value in whole.items() if name.startswith("val/") and isinstance(value, float)}
    scored = ", ".join(f"{name} {value:.4g}" for name, value in sorted(scores.items()))
    of_best = f"; epoch {best + 1} is the best{f': {scored}' if scored else ''}" if isinstance(best, int) else ""
    written = f"; the submission is {whole['submission']}" if whole.get("submission") else ""
    return f"{whole['epochs']} epochs were trained into {whole.get('folder')}{of_best}{written}"


def _report(whole: dict[str, Any]) -> dict[str, Any]:
    run, ledger, loader = (whole.get(name) or {} for name in ("run", "ledger", "loader"))
    steps = ledger.get("steps") or {}
    found: dict[str, Any] = {
        "verdict": whole.get("verdict"),
        "run": run.get("id"),
        "steps": steps.get("count"),
        "step_median_s": steps.get("median_s"),
        "samples_per_s": steps.get("all_rate_sps"),
        "where_the_time_went": _accounts(ledger.get("accounts") or ()),
        "causes": [_cause(one) for one in whole["causes"][:_CAUSES]],
        "remedies": [_remedy(one) for one in (whole.get("remedies") or ())[:_REMEDIES]],
        "findings": [one.get("title", one) if isinstance(one, dict) else one for one in whole.get("findings") or ()],
        "num_workers": loader.get("num_workers") if isinstance(loader, dict) else None,
        "problems": whole.get("problems") or [],
        "next_command": whole.get("next_command"),
    }
    return {name: one for name, one in found.items() if one not in (None, [], {})}


def _accounts(accounts: Iterable[dict[str, Any]]) -> dict[str, str]:
    shown = sorted(accounts, key=lambda one: -(one.get("share") or 0.0))[:_ACCOUNTS]
    return {str(one.get("label")): percent(one.get("share") or 0.0) for one in shown if one.get("share")}


def _cause(one: dict[str, Any]) -> dict[str, Any]:
    texts = [str(part.get("text"))[:_TEXT] for part in one.get("evidence") or () if isinstance(part, dict)]
    share = one.get("share")
    return {
        "id": one.get("id"),
        "title": one.get("title"),
        "share": None if share is None else percent(share),
        "confidence": one.get("confidence"),
        "evidence": texts[:_EVIDENCE],
    }


def _remedy(one: dict[str, Any]) -> dict[str, Any]:
    gain = one.get("gain") or {}
    predicted = "not predicted"
    if gain.get("predicted"):
        low, high = (factor(gain[name], like=gain["predicted"]) for name in ("low", "high"))
        predicted = f"{factor(gain['predicted'])} ({low} to {high}), predicted"
    found = {name: one.get(name) for name in ("id", "title", "class", "risk")}
    return found | {"gain": predicted, "how": str(one.get("how"))[:_TEXT], "settings": one.get("settings") or {}}
