"""Numbers with units in a line of prose: "5-7 h per epoch", "1.42 it/s", "64 batches", "4-6x"."""

from __future__ import annotations

import re
from dataclasses import dataclass

_NUMBER = r"(?:(?:\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+[.,]\d{1,2}(?!\d)|\d+(?:\.\d+)?)(?:[eE][+-]?\d{1,3}(?!\w))?)"
TIME = r"ms|msec|s|secs?|seconds?|mins?|minutes?|h|hrs?|hours?|d|days?|weeks?"
_ITERATION = r"(?:its?|iters?|iterations?|steps?|batch(?:es)?)"
_SAMPLE = r"(?:samples?|images?|imgs?|ims?|sequences?|sentences?|examples?|patches|clips)"
_SECOND = r"(?:s|sec|secs|second)"
_PER = r"(?:\s?/\s?|\s?per\s|\san?\s|\s?each\s)"
_NOUNS = (
    "images|files|samples|classes|breeds|categories|epochs|folds|steps|iterations|its|it|workers|cores|vcpus?|cpus"
    "|batches|voxels|patches|gpus|objects|parameters|params"
)
# Parts of one duration, largest first: "1h 2m", "2m30s", "1 hour, 2 minutes and 5 seconds", "1 day, 2:03:04".
_DAY_PART, _HOUR_PART = r"\d+\s?(?:days?|d)", r"\d+\s?(?:hours?|hrs?|h)"
_MINUTE_PART, _SECOND_PART = r"\d+\s?(?:minutes?|mins?|m)", r"\d+(?:\.\d+)?\s?(?:seconds?|secs?|s)"
_AND = r"(?:,?\s(?:and\s)?|,)?"
DURATION = (
    rf"(?:{_DAY_PART},?\s\d{{1,2}}:\d\d:\d\d"
    rf"|{_DAY_PART}{_AND}{_HOUR_PART}(?:{_AND}{_MINUTE_PART})?(?:{_AND}{_SECOND_PART})?"
    rf"|{_HOUR_PART}{_AND}{_MINUTE_PART}(?:{_AND}{_SECOND_PART})?"
    rf"|{_HOUR_PART}{_AND}{_SECOND_PART}"
    rf"|{_MINUTE_PART}{_AND}{_SECOND_PART})(?!\w)"
)
_DURATION_PART = re.compile(r"(?i)(\d+(?:\.\d+)?)\s?([dhms])|(\d+:\d\d:\d\d)")
# A name whose value comes behind it ("samples/sec=128") takes no number from in front of it.
_NO_NAME = r"(?!\s*=)(?!\s*:\s*\d)"
# What has digits but is no quantity: times of day, and the place in a count of epochs or steps.
_NOT_QUANTITIES = re.compile(
    r"(?i)(?:\b\d{2,4}[-/.]\d\d(?:[-/.]\d{2,4})?|\b[a-z]{3}\s{1,2}\d{1,2}|\b[IWEF]\d{4})[T ,]+\d{1,2}:\d\d:\d\d"
    r"(?:[.,]\d+)?(?:Z|[+-]\d\d:?\d\d)?|\[\d{1,2}:\d\d:\d\d(?:[.,]\d+)?\]"
    r"|\b\d{1,2}:\d\d(?::\d\d)?\s?[ap]\.?m\b"
    r"|\b(?:at|since|until|o'clock|started|finished|ended|now)[:\s]+\d{1,2}:\d\d(?::\d\d)?\b"
    r"|\b(?:epochs?|ep|steps?|iter(?:ation)?s?|batch(?:es)?|fold)\W{0,3}\d+\s?(?:/|of)\s*\d+"
    r"|\[\s*\d+\s?/\s?\d+\s*\]"
)
_QUANTITY = re.compile(
    rf"""(?ix)
    (?<![\w.]) (?<!\d[:,-]) (?<![\s=:(\[,|]-) (?<!^-) (?P<about> ~ | ≈ | about\ | around\ | roughly\ )? [+$]?
    (?: (?P<duration> {DURATION} )
        (?: {_PER} (?: (?P<long_epoch> (?:train\w*\s)?epoch\b ) | (?P<long_step> {_ITERATION}\b ) ) )?
    | (?P<clock> \d{{1,3}}:\d\d (?: :\d\d )? (?: \.\d+ )? ) (?![\w:])
    | (?P<low> {_NUMBER} ) (?P<kilo> [kM] (?!\w) )?
      (?: (?P<of> \s+(?:of|out\ of)\s+ | \s?/\s? ) (?P<all> {_NUMBER} ) )?
      (?: \s?(?: {TIME} | x | × | % | [KMGT]i?B | it/s)? \s?(?: - | – | — | … | \.\. | \bto\b | \band\b )\s?
          [+~]? (?P<high> {_NUMBER} ) (?P<kilo2> [kM] (?!\w) )? )?
      (?: (?P<its> \s?{_ITERATION}\s?(?:/|\sper\s)\s?{_SECOND}\b{_NO_NAME} )
      | (?P<sps> \s?{_SAMPLE}\s?(?:/|\sper\s)\s?{_SECOND}\b{_NO_NAME} )
      | (?P<step> \s?(?P<step_unit>{TIME}) {_PER} {_ITERATION}\b )
      | (?P<epoch> \s?(?P<epoch_unit>{TIME}) {_PER} (?:train\w*\s)? epoch\b )
      | (?P<byte_rate> \s?[KMGT]i?B\s?/\s?s\b )
      | (?P<bytes> \s?(?P<byte_unit>[KMGT]i?B)\b )
      | (?P<factor> (?: \s?[x×] | \s?-?times(?=\s+(?:faster|as|more|the)) ) (?![\w]) (?! \s*\d ) )
      | (?P<percent> \s?(?:%|percent\b) )
      | (?P<px> \s?(?:px|pixels)\b )
      | (?P<watts> \s?W\b )
      | (?P<time> \s?(?P<time_unit>{TIME})\b (?! \s?/ ) (?!\s*=) )
      | (?P<count> (?: \s+(?!of\b|and\b|with\b|in\b|for\b|per\b)[A-Za-z-]+ )? \s+ (?P<noun>{_NOUNS})\b
          (?!\s*=|\s?/\s?s) )
      )
    )"""
)
_SECONDS = {"ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "w": 604800.0}
_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_KINDS = ("its", "sps", "step", "epoch", "byte_rate", "bytes", "factor", "percent", "px", "watts", "time", "count")
_NAMES = {
    "its": "steps",
    "it": "steps",
    "iterations": "steps",
    "breeds": "classes",
    "categories": "classes",
    "vcpu": "cores",
    "vcpus": "cores",
    "cpus": "cores",
    "params": "parameters",
    "objects": "files",
    "patches": "samples",
}

LARGEST = 1e18  # no measurement comes near it


@dataclass(frozen=True, slots=True)
class Quantity:
    """A number or a range with what it counts.

    Attributes:
        what: "its" (iterations/s), "sps" (samples/s), "s_step", "s_epoch", "s", "bytes", "byte_rate", "factor",
            "percent", "px", "watts", or a noun such as "images" and "epochs". Times in seconds, sizes in bytes.
        low: The number, or the lower end.
        high: The same, or the upper end.
        all: What it is out of, "12.9 of 23 GB"; None: not said.
        start: Place in the line.
        end: Its end.
    """

    what: str
    low: float
    high: float
    start: int
    end: int
    all: float | None = None
    text: str = ""

    @property
    def mean(self) -> float:
        """Middle of the range."""
        return (self.low + self.high) / 2


def quantities(text: str) -> list[Quantity]:
    """All numbers with units, in their order."""
    found = map(_quantity, _QUANTITY.finditer(without_places(text)))
    return [one for one in found if one.high < LARGEST]


def without_places(text: str) -> str:
    """The text with times of day and "Epoch 3/10" struck out, as long as it was."""
    return _NOT_QUANTITIES.sub(lambda found: "#" * len(found[0]), text)


def duration_s(text: str) -> float:
    """Seconds of "1h 2m", "2 min 30 s" or "1 day, 2:03:04"."""
    seconds = 0.0
    for number_, unit, clock in _DURATION_PART.findall(text):
        hours, minutes, rest = clock.split(":") if clock else ("0", "0", "0")
        seconds += float(number_ or 0) * _SECONDS[unit.lower() or "s"]
        seconds += 3600 * float(hours) + 60 * float(minutes) + float(rest)
    return seconds


def _quantity(found: re.Match[str]) -> Quantity:
    if found["duration"]:
        seconds = duration_s(found["duration"])
        what = "s_epoch" if found["long_epoch"] else "s_step" if found["long_step"] else "s"
        return Quantity(what, seconds, seconds, found.start(), found.end(), None, found[0].strip())
    if found["clock"]:
        seconds = 0.0
        for part in found["clock"].split(":"):
            seconds = seconds * 60 + float(part)
        return Quantity("s", seconds, seconds, found.start(), found.end(), None, found[0])
    kind = next(name for name in _KINDS if found[name] is not None)
    what, scale = _unit(kind, found)
    low = number(found["low"], found["kilo"]) * scale
    high = number(found["high"], found["kilo2"]) * scale if found["high"] else low
    whole = number(found["all"]) * scale if found["all"] else None
    if high < low:
        low, high = high, low
    return Quantity(what, low, high, found.start(), found.end(), whole, found[0].strip())


def _unit(kind: str, found: re.Match[str]) -> tuple[str, float]:
    if kind in ("step", "epoch", "time"):
        unit = found[f"{kind}_unit"].lower()
        seconds = _SECONDS["ms"] if unit.startswith("ms") else _SECONDS[unit[0]]
        return {"step": "s_step", "epoch": "s_epoch", "time": "s"}[kind], seconds
    if kind == "bytes":
        return "bytes", byte_scale(found["byte_unit"])
    if kind == "byte_rate":
        return "byte_rate", byte_scale(found["byte_rate"].strip().split("/")[0])
    if kind == "count":
        noun = found["noun"].lower()
        return _NAMES.get(noun, noun), 1.0
    return kind, 1.0


def byte_scale(unit: str) -> float:
    """Bytes of a unit: GB is 1000³, GiB 1024³."""
    return float((1024 if "i" in unit.lower() else 1000) ** _POWERS[unit[0].lower()])


def number(text: str, kilo: str | None = None) -> float:
    """A number as people write it: "50,000", "0,43", "1.5", "9k"."""
    if re.fullmatch(r"\d{1,3}(?:,\d{3})+(?:\.\d+)?", text):
        text = text.replace(",", "")
    value = float(text.replace(",", "."))
    return value * {"k": 1e3, "m": 1e6}[kilo.lower()] if kilo else value
