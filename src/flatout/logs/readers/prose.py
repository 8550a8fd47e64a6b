"""What people and agents write about a training: settings, epochs in words and tables, sentences with numbers."""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.quantities import TIME, Quantity, byte_scale, number, quantities
from flatout.logs.readers.epoch_table import EpochTable
from flatout.logs.readers.progress import EPOCH

CUE = rb"\d"
LONGEST = 2000  # characters: what is longer is data, not a sentence
_N = r"(?<![\d.,])(\d{1,3}(?:,\d{3})+|\d+)"
_IMAGES = r"(?:\s+(?:images|samples|files|examples)\b|(?=\s*(?:[,;)]|and\b|\+|$)))"
_SETTINGS = (
    (
        "batch_size",
        re.compile(
            rf"(?i)(?<![/\w])(?:[a-z]+[_.])*batch(?:[_ -]?size)?\s*(?:[:=|]|\bof\b|\bis\b)?\s*{_N}\b"
            r"(?!\s?[/%:]|\.\d|\sof\b)"
            # Hugging Face's and kohya's, which name what it is the product of.
            rf"|\btotal train batch size \([^)]*\)[^=:\d]*[=:]\s*{_N}\s*$"
        ),
    ),
    (
        "workers",
        re.compile(
            rf"(?i)\bnum[_ ]workers\s*[:=|]?\s*{_N}\b|\bworkers\s*[:=|]\s*{_N}\b|\b{_N}\s+(?:[a-z]+\s+)?workers\b"
        ),
    ),
    ("prefetch", re.compile(rf"(?i)\bprefetch(?:[_ ]factor)?\s*(?:[:=|]|\bof\b)?\s*{_N}\b(?![.\d]|\s?x)")),
    ("steps_per_epoch", re.compile(rf"(?i)\b(?:batches|steps|iterations)\s(?:per|an|each)\sepoch\s*[:=|]\W*{_N}\b")),
    (
        "epochs",
        re.compile(
            rf"(?i)(?<!\d )(?<!\d)\b(?:max_|num_|num_train_|total )?epochs\s*[:=|]\s*{_N}\b(?![.:]\d|\s*(?:{TIME})\b)"
            rf"|--epochs\s+{_N}\b"
        ),
    ),
    ("folds", re.compile(rf"(?i)\b(?:n_?|num_)?folds\s*[:=|]\s*{_N}\b|\b{_N}[ -]folds?\b")),
    ("classes", re.compile(rf"(?i)\bnum[_ ]classes\s*[:=|]?\s*{_N}\b")),
    ("train_samples", re.compile(rf"(?i)\b{_N}\s+train(?:ing)?\b{_IMAGES}")),
    ("val_samples", re.compile(rf"(?i)\b{_N}\s+val(?:idation)?\b{_IMAGES}")),
)
# "Epoch 0, batch 50, loss 1.2": the batch's number, not its size.
_NUMBERED_BATCH = re.compile(
    r"(?i)(?<![\w/])batch\s*[:=]?\s*\d+\b(?=.*\b\w*loss\b)|(?<=\d)\W{1,3}batch\s*[:=]?\s*\d+\b"
)
# Samples that are not the training's, or were counted up to here.
_NOT_TRAINED = re.compile(r"(?i)\b(?:test\w*|val\w*|eval\w*|held-out)\b")
_RUNNING = re.compile(r"(?i)\b(?:avg|\w*loss|seen|processed|so far)\b")
_PATCH = re.compile(r"\b(\d{2,4})\s?[x×]\s?(\d{2,4})\s?[x×]\s?(\d{2,4})\b")
_SQUARE = re.compile(r"\b(\d{2,4})\s?[x×]\s?(\d{2,4})\b(?!\s?[x×])")
_RAM = re.compile(r"(?i)\b(\d+(?:\.\d+)?)\s?([GT]i?B)\s+(?:of\s+)?(?:system |host )?RAM\b")
_GPU_MEMORY = re.compile(
    r"(?i)\b(\d+(?:\.\d+)?)\s?(?:GB)?\s?(?:of|/)\s?(\d+(?:\.\d+)?)\s?GB\s+(?:of\s+)?(?:GPU|VRAM|device)"
)
DEVICES = re.compile(
    r"\b(?:NVIDIA[ -]|Tesla[ -]|GeForce[ -])*"
    r"((?:GB?200|B[23]00|GH200|H[12]00|H20|A100|A800|A10G|A10|A16|A30|A40|A[2-6]000|L4|L40S?|T4|V100|P100|K80"
    r"|RTX[ -]?(?:PRO )?\d{4}(?: Ti| SUPER| Ada)*|MI\d{3}X?))(?![\w])"
)
_EPOCH = re.compile(r"(?i)\bepoch\W{0,4}(\d+)\b")
# "3 epochs" that are not all there are to do.
_SOME_EPOCHS = re.compile(
    r"(?i)\b(?:after|at|in|every|each|last|past|first|next|within|previous|another|more|warm-?up|patience"
    r"|improve\w*|interval|freeze\w*|freezing|frozen|resum\w*|checkpoint\w*|saved?|saves|saving|stop\w*"
    r"|since|than|best|took|done|finished|completed)\b[^.;:,]*$"
)
_THEN = re.compile(r"(?i)\W{0,3}(?:completed|done|finished|so far|ago|later|left|remain\w*|without|with no|of warm)\b")
# Numbers before "train" and "val" that count no samples.
_NO_SAMPLES = re.compile(
    r"(?i)\b(?:\w*sizes?|resolutions?|shapes?|crops?|batch(?:es)?|steps?"
    r"|iter\w*|epochs?|loss|acc\w*|lr|rates?|workers|px)\b[^.;]*$"
)
# Durations that are not the epoch's: what is left, and parts of it.
_NO_EPOCH = re.compile(
    r"(?i)\b(?:eta|remain\w*|left|data|load\w*|read\w*|batch|step|iter\w*|val\w*|eval\w*|test\w*|wait\w*|forward"
    r"|backward|elapsed|total|wall)(?:[ _](?:time|cost|took|in))?\s*[:=(]?\s*$"
)
_LEFT = re.compile(r"(?i)\s*(?:left|remain\w*|to go|elapsed|in total|/\s?(?:it|step|batch))")
_WITHIN = re.compile(r"\[\s*(\d+)\s?/\s?(?!\1\s*[\](])\d+\s*[\](]")  # "[ 20/200]": a line from within an epoch
_PHASES = {
    "before": re.compile(r"(?i)\b(?:before|current|old|baseline|was|original)\b"),
    "after": re.compile(r"(?i)\b(?:after|new|now|proposed|optimi[sz]ed)\b"),
}
_TELLING = {"factor", "s", "s_epoch", "s_step", "its", "sps", "bytes", "percent", "batches"}
# A number near one of the words that prose is read for.
_WORTH = re.compile(
    r"\d.*(?:[x×%]|/s|[GMK]i?B|\b(?:s|sec|min|h|days?|hours?|minutes?|seconds?)\b|epoch|batch|worker|class|image|sample|fold|loss|acc)"
    r"|(?:epoch|batch|workers?|classes|size|prefetch\w*|loss|acc\w*|A\d0+|H\d00).*\d",
    re.IGNORECASE,
)
_STAMP = re.compile(  # of a machine's line
    r"^\W{0,3}(?:(?:\d{2,4}[-/.]\d\d(?:[-/.]\d{2,4})?|[A-Z][a-z]{2}\s+\d{1,2}|[IWEF]\d{4})[ T,]+)?"
    r"\d\d:\d\d:\d\d(?:[.,]\d+)?"
    r"(?:Z|[+-]\d\d:?\d\d)?[\]\s|]"
)


class ProseReader:
    """Reads a text line by line; keeps the head of the table that it is in."""

    def __init__(self) -> None:
        self._columns: list[str] = []
        self._epochs = EpochTable()

    def parse(self, text: str) -> list[Observation]:
        """Settings, epochs, metrics, and the line itself if it holds a telling quantity."""
        if len(text) > LONGEST:
            return []
        if observed := self._epochs.parse(text):
            return observed
        row = text.strip()
        if row.startswith("|") and row.endswith("|"):
            return self._row([cell.strip() for cell in row[1:-1].split("|")], row)
        self._columns = []
        if not _WORTH.search(row):
            return []
        return _sentence(text, "")

    def _row(self, cells: list[str], row: str) -> list[Observation]:
        if not self._columns:
            self._columns = [next((p for p, words in _PHASES.items() if words.search(cell)), "") for cell in cells]
            return []
        if set(row) <= set("|-: "):
            return []
        observed = []
        for cell, phase in zip(cells[1:], self._columns[1:], strict=False):
            observed += _sentence(f"{cells[0]}: {cell}", phase)
        if {"before", "after"} <= set(self._columns) and len(cells) >= len(self._columns):
            before, after = cells[self._columns.index("before")], cells[self._columns.index("after")]
            rest = [cell for cell, phase in zip(cells[1:], self._columns[1:], strict=False) if not phase]
            labels = {"said": f"{cells[0]}: {' '.join(rest)}", "before": before, "after": after}
            observed.append(Observation(Kind.STATEMENT, {}, labels))
        return observed


def _sentence(text: str, phase: str) -> list[Observation]:
    observed: list[Observation] = []
    stamp = _STAMP.match(text)
    text = text[stamp.end() :] if stamp else text
    found = quantities(text)
    settings, devices = _settings(text, found), DEVICES.findall(text)
    labels = {"phase": phase}
    if devices:
        labels["device"] = "; ".join(dict.fromkeys(devices))
    if settings or devices:
        observed.append(Observation(Kind.SETTING, settings, labels))
    epoch = _EPOCH.search(text)
    if epoch and (row := _epoch_row(text, found)):
        observed.append(Observation(Kind.EPOCH, row | {"epoch": float(epoch[1])}, {"phase": phase, "of": "text"}))
    if metrics := named_metrics(text):
        if epoch:
            metrics["epoch"] = float(epoch[1])
        observed.append(Observation(Kind.METRICS, metrics, {"of": "text"}))
    if (settings or any(one.what in _TELLING for one in found)) and not stamp:
        observed.append(Observation(Kind.STATEMENT, {}, {"phase": phase, "said": text}))
    return observed


def _epoch_row(text: str, found: list[Quantity]) -> dict[str, float]:
    """Rate, duration and steps of one epoch, where they are single numbers; none for a line from within it."""
    row: dict[str, float] = {}
    if _WITHIN.search(text):
        return row
    for one in found:
        if one.low != one.high or _NO_EPOCH.search(text[: one.start]) or _LEFT.match(text, one.end):
            continue
        if one.what == "its":
            row.setdefault("its", one.low)
        elif one.what in ("s", "s_epoch"):
            row.setdefault("seconds", one.low)
        elif one.what == "steps" and one.all is None and one.low >= 2:
            row.setdefault("steps", one.low)
    return row if "its" in row or "seconds" in row else {}


def _settings(text: str, found: list[Quantity]) -> dict[str, float]:
    settings: dict[str, float] = {}
    for name, pattern in _SETTINGS:
        match = pattern.search(_NUMBERED_BATCH.sub("", text) if name == "batch_size" else text)
        bare = name.endswith("_samples") and match is not None and not match[0].endswith("s")
        if match and not (bare and _NO_SAMPLES.search(text[: match.start()])):
            settings[name] = number(next(filter(None, match.groups())))
    if patch := _PATCH.search(text):
        settings["sample_elements"] = float(patch[1]) * float(patch[2]) * float(patch[3])
    elif (square := _SQUARE.search(text)) and square[1] == square[2]:
        settings["image_px"] = float(square[1])
    for one in found:
        if one.what in ("classes", "folds", "px", "cores") or (
            one.what == "epochs" and not _SOME_EPOCHS.search(text[: one.start]) and not _THEN.match(text, one.end)
        ):
            name = {"px": "image_px"}.get(one.what, one.what)
            settings.setdefault(name, (one.all or one.low) if name == "epochs" else one.low)
        elif (
            one.what in ("images", "samples")
            and one.low >= 100
            and not _NOT_TRAINED.search(one.text)
            and not _RUNNING.search(text)
            and "train_samples" not in settings
            and "val_samples" not in settings
        ):
            settings["train_samples"] = one.low
        elif one.what == "steps" and "epoch" in text.lower() and one.low >= 2:
            settings.setdefault("steps_per_epoch", one.low)
    of = EPOCH.search(text)
    if of and of[2] and int(of[2]) >= int(of[1]):
        settings.setdefault("epochs", float(of[2]))
    if ram := _RAM.search(text):
        settings["ram_bytes"] = float(ram[1]) * byte_scale(ram[2])
    if memory := _GPU_MEMORY.search(text):
        settings["gpu_used_bytes"], settings["gpu_total_bytes"] = float(memory[1]) * 1e9, float(memory[2]) * 1e9
    return settings
