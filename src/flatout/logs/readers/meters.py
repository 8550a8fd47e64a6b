"""Lines with a step's time and its wait for data.

Of PyTorch's ImageNet example, torchvision's references (MAE, DINO), timm, Swin Transformer, OpenMMLab, Detectron2,
PaddleDetection, PaddleClas, ESPnet, DeepSpeed and OpenCLIP.
"""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation

CUE = rb"(?i:data[ _]?(?:time|cost|\(t\))?:? ?\s*\d|Train: (?:\d+ )?\[|Test: |reader_cost: |:train:\d|global_step=\d)"
_NUMBER = r"[\d.]+(?:e[+-]?\d+)?"
_IMAGENET = re.compile(
    rf"Epoch:? ?\[(\d+)\] ?\[\s*(\d+)/(\d+)\]\s+Time:?\s+({_NUMBER})\s*\(\s*({_NUMBER})\)"
    rf"\s+Data:?\s+({_NUMBER})\s*\(\s*({_NUMBER})\)"
)
# torchvision's MetricLogger and those after it: means of the epoch so far.
_REFERENCES = re.compile(
    rf"Epoch: \[(\d+)(?:/(?P<of>\d+))?\]\s+\[\s*(?P<step>\d+)/(?P<total>\d+)\]\s+eta: .*?"
    rf"\btime: (?P<step_s>{_NUMBER})\s+data: (?P<data_s>{_NUMBER})"
)
_SWIN = re.compile(
    rf"Train: \[(\d+)/(?P<of>\d+)\]\[(?P<step>\d+)/(?P<total>\d+)\].*?\btime {_NUMBER} \((?P<step_s>{_NUMBER})\)"
    rf"(?:\s+data[ _]time {_NUMBER} \((?P<data_s>{_NUMBER})\))?",
    re.IGNORECASE,
)
_IMAGES = re.compile(rf"\bimg/s: ({_NUMBER})")
_TIMM = re.compile(
    rf"Train: (\d+) \[\s*(\d+)/(\d+) .*?Time: ({_NUMBER})s,\s*({_NUMBER})/s\s*\(({_NUMBER})s,\s*({_NUMBER})/s\)"
    rf"(?:.*?Data: ({_NUMBER}) \(({_NUMBER})\))?"
)
_TIMM_LOSS = re.compile(rf"Loss:\s*({_NUMBER}|nan)\s*\(({_NUMBER}|nan)\)")
_TIMM_TEST = re.compile(
    rf"Test:.*?\[\s*(\d+)/(\d+)\].*?Loss:\s*{_NUMBER}\s*\(\s*({_NUMBER})\)\s*Acc@1:\s*{_NUMBER}\s*\(\s*({_NUMBER})\)"
    rf"\s*Acc@5:\s*{_NUMBER}\s*\(\s*({_NUMBER})\)"
)
# The counts in its brackets are samples.
_OPENCLIP = re.compile(
    rf"Train Epoch: (\d+) \[\s*(\d+)/(\d+) \(\d+%\)\].*?Data \(t\): ({_NUMBER})\s+Batch \(t\): ({_NUMBER})"
    rf", ({_NUMBER})/s"
)
_TIME = re.compile(rf"(?<![\w])(?:time|batch_cost): ({_NUMBER})")
_IPS = re.compile(rf"\bips: ({_NUMBER}) (?:images|samples)/s")
_DATA = re.compile(rf"(?:data_time|data_cost|reader_cost): ({_NUMBER})")
_MM = re.compile(r"Epoch:? ?(?:\(train\))?\s*\[(\d+)\] ?\[\s*(\d+)/(\d+)\]")
_PADDLE = re.compile(r"\[Train\]\[Epoch (\d+)/(\d+)\]\[Iter: *(\d+)/(\d+)\]")
# Means over the lines' steps; train_time holds the wait.
_ESPNET = re.compile(rf"\b(\d+)epoch:train:\d+-(\d+)batch: .*?\biter_time=({_NUMBER}),.*?\btrain_time=({_NUMBER})")
_DEEPSPEED = re.compile(rf"\bepoch=(\d+)/micro_step=\d+/global_step=(\d+), .*?\bCurrSamplesPerSec=({_NUMBER})")
_D2 = re.compile(r"\biter: (\d+)")


def parse(text: str) -> list[Observation]:
    """A line of one of these; the averages where it gives both."""
    if found := _IMAGENET.search(text):
        epoch, step, total, _, mean_s, _, data_s = map(float, found.groups())
        values = {"epoch": epoch, "step": step, "total": total, "step_s": mean_s, "data_s": data_s, "mean": 1.0}
        return [Observation(Kind.STEP, values), *_metrics(text, {"epoch": epoch, "step": step})]
    if found := _REFERENCES.search(text) or _SWIN.search(text):
        return _means(text, found)
    if found := _TIMM.search(text):
        return _timm(text, found)
    if found := _TIMM_TEST.search(text):
        at, last, loss, acc1, acc5 = map(float, found.groups())
        metrics = {"val_loss": loss, "val_acc1": acc1 / 100, "val_acc5": acc5 / 100}
        return [Observation(Kind.METRICS, metrics if at == last else {})]
    if found := _OPENCLIP.search(text):
        return _openclip(text, found)
    if found := _ESPNET.search(text):
        epoch, step, data_s, step_s = map(float, found.groups())
        when = {"epoch": epoch, "step": step}
        return [Observation(Kind.STEP, when | {"step_s": step_s, "data_s": data_s}), *_metrics(text, when)]
    if found := _DEEPSPEED.search(text):
        _, step, rate = map(float, found.groups())
        return [Observation(Kind.STEP, {"step": step, "samples_s": rate})]
    time, data = _TIME.search(text), _DATA.search(text)
    if not time:
        return []
    values = {"step_s": float(time[1])}
    if data:
        values["data_s"] = float(data[1])
    if ips := _IPS.search(text):
        values["samples_s"] = float(ips[1])
    plan: list[Observation] = []
    if place := _PADDLE.search(text):
        epoch, epochs, step, total = map(float, place.groups())
        values |= {"epoch": epoch, "step": step, "total": total}
        plan = [Observation(Kind.SETTING, {"epochs": epochs})]
    elif place := _MM.search(text):
        values |= {"epoch": float(place[1]), "step": float(place[2]), "total": float(place[3])}
    elif place := _D2.search(text):
        values["step"] = float(place[1])
    else:
        return []
    when = {name: value for name, value in values.items() if name in ("epoch", "step")}
    return [Observation(Kind.STEP, values), *_metrics(text, when), *plan]


def _means(text: str, found: re.Match[str]) -> list[Observation]:
    named = {name: float(value) for name, value in found.groupdict().items() if value is not None}
    epochs = named.pop("of", None)
    when = {"epoch": float(found[1]), "step": named["step"]}
    values = named | when | {"mean": 1.0}
    if rate := _IMAGES.search(text):
        values["samples_s"] = float(rate[1])
    plan = [] if epochs is None else [Observation(Kind.SETTING, {"epochs": epochs})]
    return [Observation(Kind.STEP, values), *_metrics(text, when), *plan]


def _timm(text: str, found: re.Match[str]) -> list[Observation]:
    epoch, step, total = (float(found[place]) for place in (1, 2, 3))
    values = {"epoch": epoch, "step": step, "total": total, "mean": 1.0}
    values |= {"step_s": float(found[6]), "samples_s": float(found[7])}
    if found[9]:
        values["data_s"] = float(found[9])
    observed = [Observation(Kind.STEP, values)]
    if loss := _TIMM_LOSS.search(text):
        observed.append(Observation(Kind.METRICS, {"epoch": epoch, "train_loss": float(loss[2])}))
    return observed


def _openclip(text: str, found: re.Match[str]) -> list[Observation]:
    epoch, done, whole, data_s, step_s, rate = map(float, found.groups())
    batch = max(round(step_s * rate), 1)
    values = {"epoch": epoch, "step": done // batch, "total": whole // batch, "step_s": step_s, "data_s": data_s}
    observed = [Observation(Kind.STEP, values | {"samples_s": rate})]
    return [*observed, *_metrics(text, {"epoch": epoch, "step": done // batch})]


def _metrics(text: str, when: dict[str, float]) -> list[Observation]:
    metrics = named_metrics(text)
    if "loss" in metrics:
        metrics["train_loss"] = metrics.pop("loss")
    return [Observation(Kind.METRICS, metrics | when)] if metrics else []
