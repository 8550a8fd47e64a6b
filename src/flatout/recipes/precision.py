"""The precision of a training, by Lightning's names."""

from __future__ import annotations

from typing import Any

import torch


def lightning_precision(wanted: str) -> Any:
    """The precision by Lightning's name; ``auto``: bf16 if the GPU supports it, else fp16; fp32 on a CPU."""
    if wanted == "auto":
        if not torch.cuda.is_available():
            return "32-true"
        return "bf16-mixed" if torch.cuda.is_bf16_supported() else "16-mixed"
    return {"fp32": "32-true", "bf16": "bf16-mixed", "fp16": "16-mixed"}[wanted]
