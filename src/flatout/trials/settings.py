"""How to keep what was proved: a one-line command with the same settings."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from flatout.errors import UsageError

# name -> (kind of value, what it does); as flatout/probe/injections takes them, which cannot be imported without torch.
SETTINGS: dict[str, tuple[type, str]] = {
    "num_workers": (int, "worker processes of the training's DataLoader"),
    "prefetch_factor": (int, "batches that each worker prepares ahead"),
    "persistent_workers": (bool, "keep workers from pass to pass"),
    "pin_memory": (bool, "batches in pinned memory"),
    "non_blocking": (bool, "copies from pinned memory to the GPU do not wait"),
    "in_order": (bool, "batches in the order of their indices"),
    "worker_threads": (int, "threads that libraries use in each worker"),
    "start_method": (str, "of workers: fork, spawn or forkserver"),
    "batch_size": (int, "samples in a batch"),
    "lr_factor": (float, "factor on the learning rates"),
    "accumulate": (int, "backward passes for each step of the optimizer"),
    "autocast": (str, "precision of the forward pass: bf16 or fp16"),
    "tf32": (bool, "TF32 in float32 matrix products"),
    "channels_last": (bool, "memory format of models and batches"),
    "compile": (str, "torch.compile: default, reduce-overhead or max-autotune"),
    "optimizer_form": (str, "fused or foreach"),
    "cudnn_benchmark": (bool, "cuDNN tries its algorithms"),
    "jpeg_short_side": (int, "decode JPEGs at a scale that leaves this short side"),
    "file_cache_bytes": (int, "bytes of picture files that each process keeps in memory"),
    "read_from": (str, "REAL=COPY: read below one folder from a copy of it"),
    "read_through": (str, "REAL=CACHE:BYTES: keep what is read below one folder on another disk"),
    "checkpoint_beside": (bool, "write checkpoints in a thread"),
    "checkpoint_every": (int, "write every n-th checkpoint"),
    "log_every": (int, "write every n-th metric"),
    "lazy_scalars": (bool, "read .item() from the GPU only when it is looked at"),
}
# Changed only where the user has a setting for them: nothing can be injected.
PLACED_ONLY = {"validation_factor": (float, "factor on the steps or epochs between validations")}
_WORDS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def keep_command(command: Sequence[str], settings: Mapping[str, Any]) -> str:
    """The command line that trains with these settings from now on."""
    sets = " ".join(f"--set {shlex.quote(f'{name}={_written(value)}')}" for name, value in settings.items())
    return f"flatout apply {sets} -- {' '.join(shlex.quote(word) for word in command)}"


def _written(value: Any) -> str:
    return json.dumps(value) if isinstance(value, bool | int | float) else str(value)


def read_settings(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``name=value`` pairs.

    Raises:
        UsageError: a name that there is not, or a value of another kind.
    """
    found: dict[str, Any] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or name not in SETTINGS:
            raise UsageError(f"--set {text!r}: write NAME=VALUE, with NAME one of {', '.join(SETTINGS)}")
        found[name] = _value(name, value)
    return found


def _value(name: str, text: str) -> Any:
    kind, meaning = SETTINGS[name]
    if kind is bool:
        if text.lower() not in _WORDS:
            raise UsageError(f"--set {name}={text}: {meaning} is true or false")
        return _WORDS[text.lower()]
    try:
        value = kind(text)
    except ValueError:
        raise UsageError(f"--set {name}={text}: {meaning} is a number, such as 4") from None
    if kind in (int, float) and value < (0 if name == "num_workers" else 1 if kind is int else 1e-9):
        raise UsageError(f"--set {name}={text}: {meaning} cannot be {text}")
    return value
