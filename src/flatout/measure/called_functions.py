"""Functions that the training loop calls besides a step's own work: to log, to validate, to save."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flatout.measure.account_ids import CODE, COMPUTE_ACCOUNTS
from flatout.measure.accounts import Charged
from flatout.measure.samples import Samples, frames_of, is_named, stack_weights
from flatout.results import Ledger, Line

METRICS = "metrics"  # the key of what computes them in forward pass and loss
CALLING = ("host_other", "logging", "validation", "checkpoint")  # accounts of what a loop calls
# Installed packages whose functions only report, and a framework's validation and checkpoints.
_REPORTING = re.compile(
    r"/(sklearn/metrics|torchmetrics|torcheval|scipy/stats|matplotlib|seaborn|plotly"
    r"|transformers/trainer\.py|(?:pytorch_lightning|lightning/pytorch)/loops/evaluation_loop\.py)"
)
_OF_FRAMEWORK = re.compile(r"(^|\.)(evaluate|_save_checkpoint|_EvaluationLoop\.run)$")
# Objects that gather values for a metric are modules of torch, which are called as a model is.
_OF_METRICS = re.compile(r"/(torchmetrics/(metric|collections)\.py|(sklearn|torcheval|ignite)/metrics/)")
_INSTALLED = re.compile(r".*/(?:site|dist)-packages/(\w+)")
_MEASURED = ("forward", "loss")
_IN_PLACE = re.compile(r"\.[a-z]\w*[a-z0-9]_\(|\.data(\[.*\])?\s*[-+*/]?=[^=]|\.load_state_dict\(")
# A line that begins with a call, and so goes without what that returns.
_DISCARDS = re.compile(r"(?!(?:return|yield|await|if|elif|while|for|with|assert|del|raise)\b)[\w.\[\]\"\']+\(")
REPORTS = re.compile(
    r"acc|auc|metric|precision|recall|psnr|ssim|dice|bleu|confusion|perplexity|(?:^|[._])log(?:$|_)|logg|print|plot|show|"
    r"save|dump|write|record|report|eval|monitor|statistic|grad_norm|visuali|summary|histogram|"
    r"(?:^|[._])(?:f1|iou|wer|cer|stats|norms?)(?:$|_)",
    re.IGNORECASE,
)
# A function with less than this share of a step's samples is no part of the step: samples at its edges fall on others.
_OF_STEP = 0.05


@dataclass(frozen=True)
class CalledFunction:
    """A function that the loop calls, with the time of its calls in the window.

    Attributes:
        file: of its code.
        name: qualified, as in ``Journal.write``; before Python 3.11 its last part.
        seconds: of all calls, in one account.
        changes_tensors: a sampled line of the user's in it changes one in place, as an average of weights does.
        feeds_step: the lines that call it take what it returns; neither they nor its name speak of a metric or report.
    """

    file: str
    name: str
    seconds: float
    changes_tensors: bool = False
    feeds_step: bool = False


def called_functions(charged: Charged, ledger: Ledger, begin_ns: int, end_ns: int) -> dict[str, list[CalledFunction]]:
    """By account, the outermost functions on its stack samples that no step has on its own; most time first."""
    samples = charged.samples
    inside = (samples.time_ns >= begin_ns) & (samples.time_ns < end_ns) & (charged.sample_piece >= 0)
    code = np.where(inside, charged.account[charged.sample_piece], -1)
    of_step = of_step_functions(charged, begin_ns, end_ns)
    found: dict[str, list[CalledFunction]] = {}
    for id in CALLING:
        account = ledger.account(id)
        weights = stack_weights(samples.take(code == CODE[id]))
        total = sum(weights.values())
        if account is None or total <= 0:
            continue
        seconds: dict[tuple[str, str], float] = {}
        changing = set()
        taken: dict[tuple[str, str], float] = {}
        for stack, weight in weights.items():
            frames = frames_of(samples.names, stack)
            called = _outermost(frames, of_step)
            if called is not None:
                seconds[called] = seconds.get(called, 0.0) + account.seconds * weight / total
                if any(frame[4] and _IN_PLACE.search(str(frame[3])) for frame in _inside(frames, called)):
                    changing.add(called)
                if _feeds_step(frames, called):
                    taken[called] = taken.get(called, 0.0) + account.seconds * weight / total
        made = (
            CalledFunction(*key, each, key in changing, taken.get(key, 0.0) > each / 2) for key, each in seconds.items()
        )
        found[id] = sorted(made, key=lambda one: -one.seconds)
    return found


def package_of(file: str) -> str:
    """The installed package, or else the file's own name, that a function comes from."""
    inside = _INSTALLED.search(file.replace("\\", "/"))
    return inside[1] if inside else file.rpartition("/")[2]


def metric_functions(charged: Charged, ledger: Ledger, begin_ns: int, end_ns: int) -> list[CalledFunction]:
    """Functions of packages for metrics that steps call in forward pass and loss; most time first."""
    samples = charged.samples
    inside = (samples.time_ns >= begin_ns) & (samples.time_ns < end_ns) & (charged.sample_piece >= 0)
    code = np.where(inside, charged.account[charged.sample_piece], -1)
    seconds: dict[tuple[str, str], float] = {}
    for id in _MEASURED:
        account, weights = ledger.account(id), stack_weights(samples.take(code == CODE[id]))
        for stack, weight in weights.items() if account is not None else ():
            frames = frames_of(samples.names, stack)
            outermost = next((one for one in reversed(frames) if _OF_METRICS.search(_function(one)[0])), None)
            if outermost is not None and account is not None:
                called = _function(outermost)
                seconds[called] = seconds.get(called, 0.0) + account.seconds * weight / sum(weights.values())
    return sorted((CalledFunction(*key, each) for key, each in seconds.items()), key=lambda one: -one.seconds)


def hook_functions(samples: Samples, hooks: Sequence[Line]) -> list[CalledFunction]:
    """The functions to leave out so that hooks do nothing: the hooks, or what those call that have no name."""
    found = []
    for hook in hooks:
        name = hook.function if is_named(hook.function) else _called_by(samples, hook)
        if name:
            found.append(CalledFunction(hook.file, name, hook.seconds))
    return found


def _called_by(samples: Samples, hook: Line) -> str | None:
    """The function of the same file that a hook calls, as stack samples show it."""
    calls: dict[str, float] = {}
    for stack, weight in stack_weights(samples).items():
        frames = frames_of(samples.names, stack)
        places = [place for place, frame in enumerate(frames) if _function(frame) == (hook.file, hook.function)]
        inner = frames[places[-1] - 1] if places and places[-1] else None
        if inner is not None and inner[0] == hook.file and is_named(str(inner[2])):
            calls[str(inner[2])] = calls.get(str(inner[2]), 0.0) + weight
    return max(calls, key=calls.__getitem__, default=None)


def of_step_functions(charged: Charged, begin_ns: int, end_ns: int) -> set[tuple[str, str]]:
    """(file, function) of those on the stack while a step computes: the loop, and what calls it."""
    samples = charged.samples
    inside = (samples.time_ns >= begin_ns) & (samples.time_ns < end_ns) & (charged.sample_piece >= 0)
    computing = np.isin(charged.account[charged.sample_piece], [CODE[id] for id in COMPUTE_ACCOUNTS])
    weights = stack_weights(samples.take(inside & computing))
    seen: dict[tuple[str, str], float] = {}
    for stack, weight in weights.items():
        for function in {_function(frame) for frame in frames_of(samples.names, stack)}:
            seen[function] = seen.get(function, 0.0) + weight
    least = _OF_STEP * sum(weights.values())
    return {function for function, weight in seen.items() if weight > least}


def _outermost(frames: Sequence[Sequence[Any]], of_step: set[tuple[str, str]]) -> tuple[str, str] | None:
    """The outermost function of a stack, innermost frame first, that is no part of the step and can be left out."""
    for frame in reversed(frames):
        function = _function(frame)
        if function in of_step or not is_named(function[1]):
            continue
        package = _REPORTING.search(function[0])
        if frame[4] or (package and (package[1][-3:] != ".py" or _OF_FRAMEWORK.search(function[1]))):
            return function
    return None


def _inside(frames: Sequence[Sequence[Any]], function: tuple[str, str]) -> Sequence[Sequence[Any]]:
    """The frames of a stack, innermost first, from its innermost one to that of the function."""
    return frames[: 1 + max(place for place, frame in enumerate(frames) if _function(frame) == function)]


def _feeds_step(frames: Sequence[Sequence[Any]], function: tuple[str, str]) -> bool:
    """Whether the line that calls a function takes what it returns, for more than a report.

    Args:
        frames: of a stack, the innermost one first.
        function: file and qualified name.
    """
    calling = frames[len(_inside(frames, function)) :]
    source = str(calling[0][3]).strip() if calling else ""
    return bool(source) and not _DISCARDS.match(source) and not REPORTS.search(f"{function[1]} {source}")


def _function(frame: Sequence[Any]) -> tuple[str, str]:
    return str(frame[0]), str(frame[2])
