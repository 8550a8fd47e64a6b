"""Something to be done before gradients are clipped."""

import functools

import torch


def before_clipping(action, *names):
    """Have ``action()`` called before these functions of ``torch.nn.utils``."""
    for module in (torch.nn.utils, torch.nn.utils.clip_grad):
        for name in names:
            setattr(module, name, _after(action, getattr(module, name)))


def _after(action, original):
    @functools.wraps(original)
    def clipping(*args, **kwargs):
        action()
        return original(*args, **kwargs)

    return clipping
