"""The random states of a process, as a checkpoint keeps them: plain values and tensors, so that no code is loaded."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch


def random_states() -> dict[str, Any]:
    """States of Python's, numpy's, torch's and CUDA's generators."""
    name, keys, *rest = np.random.get_state()
    return {
        "python": _listed(random.getstate()),
        "numpy": [str(name), torch.from_numpy(np.array(keys, np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else [],
    }


def restore_random_states(states: dict[str, Any]) -> None:
    """Restore the states that ``random_states`` returned."""
    random.setstate(_tupled(states["python"]))
    name, keys, *rest = states["numpy"]
    np.random.set_state((name, keys.numpy().astype(np.uint32), *rest))
    torch.set_rng_state(states["torch"].cpu())
    if states["cuda"]:
        torch.cuda.set_rng_state_all([value.cpu() for value in states["cuda"]])


def _listed(value: Any) -> Any:
    return [_listed(part) for part in value] if isinstance(value, tuple) else value


def _tupled(value: Any) -> Any:
    return tuple(_tupled(part) for part in value) if isinstance(value, list) else value
