"""Lines of a training's own: "Train step 100/4000 loss=0.4 step_time=18.1s", and the machine in "RESOURCES: ..."."""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation
from flatout.logs.quantities import quantities
from flatout.logs.readers.line_times import line_time
from flatout.logs.readers.progress import EPOCH

CUE = rb"RESOURCES:|(?i:\b(?:step|iter(?:ation)?)s?[ :=\[]{1,9}\d+)|(?i:\bepoch \d+: +\d+ ?/ ?\d+ )"
_STEP = re.compile(
    r"(?i)\b(?:(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?)[ :=\[]{1,9}|epoch \d+: +(?=\d+ ?/))"
    r"(\d+)(?:\s?(?:/|of)\s*(\d+))?"
)
_SECONDS = re.compile(
    r"""(?ix) (?: (?:step|iter|batch)[_ ]?(?:time|s|duration) | \btime | \btook | \bdt ) \s*[:=]?\s*
        (\d+(?:\.\d+)?)\s?(ms|s|sec|seconds)?\b(?![ms\s]*[/:\d])
      | (\d+(?:\.\d+)?)\s?(ms|s|sec) (?:\s?/\s?|\sper\s)(?:it|iter|step|batch) """
)
_DATA = re.compile(r"(?i)\b(?:data|load(?:ing)?|wait(?:ing)?)(?:[_ ]?time)?\s*[:=]\s*(\d+(?:\.\d+)?)\s?(ms|s)?\b")
# "elapsed time per iteration (ms): 2000.0", Megatron's.
_IN_UNIT = re.compile(r"(?i)\btime(?: per (?:iter(?:ation)?|step|batch))? ?\((ms|s)\)\s*[:=]\s*(\d+(?:\.\d+)?)")
_UPDATES = re.compile(r"\bups=(\d+(?:\.\d+)?)")  # fairseq's updates a second
_GLOBAL_BATCH = re.compile(r"(?i)\b(?:global batch size:|bsz=)\s*(\d+)")
# Samples a second: the value stands before the unit, or behind it and a sign.
_UNIT = r"(?:samples?|images?|imgs?|sequences?)"
_RATE_BEHIND = re.compile(
    rf"(?i)\b{_UNIT}(?:\s?/\s?|_per_|\sper\s)(?:s|sec|second)\b[^\S\n]*[:=]\s*(\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?![\d,])"
)
_RESOURCES = re.compile(
    r"RESOURCES:\s*(?:(?P<cores>\d+)\s*(?:v?CPUs?|CPU cores|cores))?(?P<rest>.*)",
)
_BATCH = re.compile(r"\bbatch(?:_size)?\s*[=:]\s*(\d+)")
_GPU = re.compile(r"\bGPU\s*[=:]\s*([^,;|]+)")
_WORKERS = re.compile(r"\b(?:num_)?workers\s*[=:]\s*(\d+)")


def parse(text: str) -> list[Observation]:
    """A step with its duration, or the resources."""
    if "RESOURCES:" in text and (found := _RESOURCES.search(text)):
        return _resources(found)
    step = _STEP.search(text)
    if step is None:
        return []
    values = {"step": float(step[1])}
    if step[2]:
        values["total"] = float(step[2])
    observed: list[Observation] = []
    settings: dict[str, float] = {}
    if epoch := EPOCH.search(text):
        values["epoch"] = float(epoch[1])
        if epoch[2]:
            settings["epochs"] = float(epoch[2])
    metrics = named_metrics(text)
    if "loss" in metrics:
        metrics["train_loss"] = metrics.pop("loss")
    when = {name: value for name, value in values.items() if name != "total"}
    if metrics:
        observed.append(Observation(Kind.METRICS, metrics | when))
    if in_unit := _IN_UNIT.search(text):
        values["step_s"] = float(in_unit[2]) * (1e-3 if in_unit[1].lower() == "ms" else 1)
    elif (updates := _UPDATES.search(text)) and float(updates[1]) > 0 and line_time(text)[0] is None:
        values["step_s"] = 1 / float(updates[1])  # rounded: the times of lines are better
    elif seconds := _SECONDS.search(text):
        number, unit = (seconds[1], seconds[2]) if seconds[1] else (seconds[3], seconds[4])
        values["step_s"] = float(number) * (1e-3 if unit and unit.lower() == "ms" else 1)
    if rate := _RATE_BEHIND.search(text):
        values["samples_s"] = float(rate[1])
    elif before := [one.low for one in quantities(text) if one.what == "sps" and one.low == one.high]:
        values["samples_s"] = before[0]
    if batch := _GLOBAL_BATCH.search(text):
        settings["batch_size"] = float(batch[1])
    if not observed and "step_s" not in values and "samples_s" not in values:
        return []
    if data := _DATA.search(text):
        values["data_s"] = float(data[1]) * (1e-3 if data[2] and data[2].lower() == "ms" else 1)
    if settings:
        observed.append(Observation(Kind.SETTING, settings))
    return [Observation(Kind.STEP, values), *observed]


def _resources(found: re.Match[str]) -> list[Observation]:
    values, labels = {}, {"phase": "seen"}
    if found["cores"]:
        values["cores"] = float(found["cores"])
    if batch := _BATCH.search(found["rest"]):
        values["batch_size"] = float(batch[1])
    if workers := _WORKERS.search(found["rest"]):
        values["workers"] = float(workers[1])
    if gpu := _GPU.search(found["rest"]):
        labels["device"] = gpu[1].strip()
    return [Observation(Kind.SETTING, values, labels)]
