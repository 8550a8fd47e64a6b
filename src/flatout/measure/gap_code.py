"""Code between the measured calls of a step: logging, copies of the weights, gradients of gradients."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from typing import Any

from flatout.measure.functions import work_of

LOGGING, OTHER, FORWARD, BACKWARD, OPTIMIZER, LOSS = (
    "logging", "host_other", "forward", "backward", "optimizer", "loss",
)  # fmt: skip
_LOGGERS = re.compile(
    r"/(pytorch_lightning|lightning(/pytorch)?)/(loggers|trainer/connectors/logger_connector)/"
    r"|/(wandb|tensorboard|tensorboardX|torch/utils/tensorboard|mlflow|comet_ml|neptune|clearml|aim|torchmetrics|tqdm)/"
    r"|/logging/__init__\.py$"
)
_LOGS = re.compile(r"\bself\.log(_dict)?\(|\b(logger|wandb|writer|mlflow|run)\.(log|add|info)\w*\(|\bprint\(")
# Of the standard library: what no loss calls.
_BESIDE = re.compile(r"/(copy|pickle|csv|re|statistics|difflib|json/\w+|tempfile|shutil)\.py$")
_COPIES = re.compile(
    r"\bdeepcopy\(|\bstate_dict\(|\b(batch_)?decode\(|\bgc\.collect\(|\bsleep\(|\b(savefig|imshow|imsave)\("
    r"|\bjson\.dumps?\(|\bpickle\.dumps?\(|\.write\("
)
# Packages whose functions may be part of a model or of a loss.
_OF_MODELS = frozenset({"torch", "torchvision", "timm", "monai", "kornia", "torch_geometric", "dgl", "numpy"})

# Weights that a loop of the user's moves along their gradients.
_UPDATES = re.compile(r"(\.(add|sub|addcmul|addcdiv|lerp)_\(|-=|\b_foreach_(add|sub)_\().*\bgrads?\b")

# What PyTorch does around an optimizer's step, before and after the measured part of the call; zero_grad of modules.
_STEPS = re.compile(r"\b(\w*optim\w*|opt|scaler)\.step\(|\.zero_grad\(")

# torch.autograd.grad, which penalties on gradients and equations as losses call; no backward pass was measured there.
_GRADIENTS = re.compile(r"/torch/autograd/__init__\.py$|/torch/_functorch/eager_transforms\.py$")

# The call of an autograd.Function, which may compute in NumPy or SciPy, and the function that it leads to.
_APPLIED, _FORWARD = re.compile(r"\.apply\("), re.compile(r"(^|\.)forward$")
_DIRECT = re.compile(r"\.forward\(")  # a module's own method, which hooks and the probe do not see


def instead_of_loss(frames: Sequence[Sequence[Any]]) -> str | None:
    """The account of a stack that was sampled between forward and backward pass; None: the loss.

    What is not known to be anything else counts as the loss.

    Args:
        frames: innermost first, ``[file, line, function, source, is_user]`` as the record keeps them.
    """
    if _is_function(frames):
        return None
    work = work_of(frames)
    if work.package is not None and work.package not in _OF_MODELS:
        return OTHER
    for file, _line, _function, source, user in frames:
        path = str(file).replace("\\", "/")
        if not user and _LOGGERS.search(path):
            return LOGGING
        if not user and _BESIDE.search(path):
            return OTHER
        if user:
            if _LOGS.search(str(source)):
                return LOGGING
            if _STEPS.search(str(source)):
                return OPTIMIZER
            return OTHER if _COPIES.search(str(source)) else None
    return None


def instead_of_other(frames: Sequence[Sequence[Any]]) -> str | None:
    """The account of a stack that was sampled outside all measured calls; None: other code.

    Args:
        frames: as for ``instead_of_loss``.
    """
    if _is_function(frames):
        return LOSS
    inner = itertools.takewhile(lambda frame: not frame[4], frames)
    if any(_GRADIENTS.search(str(frame[0]).replace("\\", "/")) for frame in inner):
        return BACKWARD
    caller = next((frame for frame in frames if frame[4]), None)
    if caller is not None and (_UPDATES.search(str(caller[3])) or _STEPS.search(str(caller[3]))):
        return OPTIMIZER
    return FORWARD if _leads_to_forward(frames, _DIRECT) else None


def _is_function(frames: Sequence[Sequence[Any]]) -> bool:
    """True inside the forward pass of an autograd.Function."""
    return _leads_to_forward(frames, _APPLIED)


def _leads_to_forward(frames: Sequence[Sequence[Any]], call: re.Pattern[str]) -> bool:
    return any(
        _FORWARD.search(str(inner[2])) and call.search(str(outer[3])) for inner, outer in itertools.pairwise(frames)
    )
