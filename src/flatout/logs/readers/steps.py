"""Lines of a training's own: "Train step 100/4000 loss=0.4 step_time=18.1s", and the machine in "RESOURCES: ..."."""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation

CUE = rb"RESOURCES:|(?i:\b(?:step|iter(?:ation)?)s?[ :=\[]{1,3}\d+)"
_STEP = re.compile(
    r"(?i)\b(?:train(?:ing)?[ _])?(?:step|iter(?:ation)?)[ :=\[]{1,3}(\d+)(?:\s?(?:/|of)\s?(\d+))?", re.IGNORECASE
)
_SECONDS = re.compile(
    r"""(?ix) (?: (?:step|iter|batch)[_ ]?(?:time|s|duration) | \btime | \btook | \bdt ) \s*[:=]?\s*
        (\d+(?:\.\d+)?)\s?(ms|s|sec|seconds)?\b(?!\s*/)
      | (\d+(?:\.\d+)?)\s?(ms|s|sec) (?:\s?/\s?|\sper\s)(?:it|iter|step|batch) """
)
_DATA = re.compile(r"(?i)\b(?:data|load(?:ing)?|wait(?:ing)?)(?:[_ ]?time)?\s*[:=]\s*(\d+(?:\.\d+)?)\s?(ms|s)?\b")
_EPOCH = re.compile(r"\b[Ee]poch[ :=\[]{1,3}(\d+)")
_RATE = re.compile(r"(?i)(\d+(?:\.\d+)?)\s?(?:samples?|images?|imgs?)\s?/\s?s")
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
    if epoch := _EPOCH.search(text):
        values["epoch"] = float(epoch[1])
    metrics = named_metrics(text)
    if "loss" in metrics:
        metrics["train_loss"] = metrics.pop("loss")
    when = {name: value for name, value in values.items() if name != "total"}
    observed = [Observation(Kind.METRICS, metrics | when)] if metrics else []
    if seconds := _SECONDS.search(text):
        number, unit = (seconds[1], seconds[2]) if seconds[1] else (seconds[3], seconds[4])
        values["step_s"] = float(number) * (1e-3 if unit and unit.lower() == "ms" else 1)
    if rate := _RATE.search(text):
        values["samples_s"] = float(rate[1])
    if not observed and "step_s" not in values and "samples_s" not in values:
        return []
    if data := _DATA.search(text):
        values["data_s"] = float(data[1]) * (1e-3 if data[2] and data[2].lower() == "ms" else 1)
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
