"""Progress bars: tqdm, Lightning's (which is tqdm's), and rich's."""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation

CUE = rb"[\d?](?:it|ba|batch|step|s|iter)/(?:s|it|ba|step|batch|iter)\b|\d\s\[(?:\d+:)?\d\d:\d\d<"
_CLOCK = r"(?:\d+\s?days?,\s*)?(?:\d+:)?\d{1,2}:\d\d"
_TQDM = re.compile(
    rf"""(?x)
    ^(?P<bar> .*? ) \s* (?: (?P<percent> \d{{1,3}})% \|[^|]*\| \s* | (?<! \d) (?= \d+/\d+\s\[) )
    (?P<n> [\d.]+[kMGT]?) / (?P<total> [\d.]+[kMGT]?) \s*
    \[ (?P<elapsed> {_CLOCK}) < (?P<left> [^,\]]*)
    (?: , \s* (?P<rate> [\d.,]+[kMG]?|\?) \s? (?P<unit> [^\s,\]=]*) (?! [^\s,\]]) )?
    (?: ,\s* (?P<rest> [^\]]*) )? \]"""
)
_COUNTING = re.compile(
    rf"""(?x)
    ^(?: (?P<bar> .*? ) :\s+ )? (?P<n> [\d.]+[kMGT]?) \s? (?P<what> [A-Za-z]+) \s
    \[ (?P<elapsed> {_CLOCK}) , \s* (?P<rate> [\d.,]+[kMG]?|\?) \s? (?P<unit> [^\s,\]]+)
    (?: ,\s* (?P<rest> [^\]]*) )? \]"""
)
_RICH = re.compile(
    rf"""(?x)
    ^(?P<bar> .*? ) \s* [━╸╺─-]+ \s* (?P<n> \d+) / (?P<total> \d+) \s+ (?P<elapsed> {_CLOCK}) \s+ [•·*-] \s+
    (?P<left> [\d:-]+) \s+ (?P<rate> [\d.]+) (?P<unit> it/s) \s* (?P<rest> .*)"""
)
EPOCH = re.compile(r"(?i)\bep(?:och)?s?\b\W{0,3}(\d{1,7})\b(?:\s?(?:/|\bof\b)\s?(\d{1,7})\b)?")
_YOLO = re.compile(r"^\s*(\d+)/(\d+)\s+\d+(?:\.\d+)?G\b")  # Ultralytics: epoch and GPU memory open the bar
_POWERS = {"k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def parse(text: str) -> list[Observation]:
    """A state of a bar; with the metrics behind it, if any."""
    # Notebooks draw the bar as a picture: their text has the counts alone.
    plain = "<" in text and "•" not in text
    found = _TQDM.match(text) if plain else _RICH.match(text) if "•" in text else _COUNTING.match(text)
    if found is None:
        return []
    part = found.groupdict()
    values = {"n": _number(part["n"]), "elapsed_s": clock(part["elapsed"])}
    if part.get("total"):
        values["total"] = _number(part["total"])
    its = _rate(part["rate"] or "?", part["unit"] or "")
    if its is not None:
        values["its"] = its
    bar = (part["bar"] or "").strip(" :│|")[-80:]
    epoch = EPOCH.search(bar) or _YOLO.match(part["bar"] or "")
    if epoch:
        values["epoch"] = float(epoch[1])
        if epoch[2]:
            values["epochs"] = float(epoch[2])
    unit = (part["unit"] or "it/s").removesuffix("/s").removeprefix("s/")
    observed = [Observation(Kind.PROGRESS, values, {"bar": bar, "unit": unit})]
    if part["rest"] and (metrics := named_metrics(part["rest"])):
        if epoch:
            metrics["epoch"] = float(epoch[1])
        observed.append(Observation(Kind.METRICS, metrics))
    return observed


def clock(text: str) -> float:
    """Seconds of "07:37", "1:02:03" or "1 day, 2:03:04"."""
    days, _, rest = text.rpartition("day")
    seconds = 0.0
    for part in rest.lstrip("s, ").split(":"):
        seconds = seconds * 60 + float(part)
    return seconds + 86400 * float(days or 0)


def _number(text: str) -> float:
    return float(text[:-1]) * _POWERS[text[-1]] if text[-1] in _POWERS else float(text)


def _rate(text: str, unit: str) -> float | None:
    """Iterations a second; of "2.3s/it" its inverse."""
    if text == "?":
        return None
    try:
        rate = _number(text.replace(",", "."))
    except ValueError:
        return None
    if unit.startswith("s/"):
        return 1 / rate if rate > 0 else None
    return rate
