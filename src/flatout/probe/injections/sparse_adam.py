"""Embedding tables of Adam and AdamW: a step updates the rows that its batch takes, and leaves all others as they are.

That is what torch's SparseAdam does, and another training: Adam moves a row on after its last gradient, by what is left
of its mean, and AdamW lets all rows decay. The state of the optimizer has the same form, so that checkpoints fit.
Source: SparseAdam's documentation, "masked version of the Adam algorithm".
"""

import functools

import torch
from torch.optim import Adam, AdamW

from .sparse_embeddings import Tables

SETTING = "sparse_adam"
_OTHER_FORMS = ("amsgrad", "maximize", "capturable", "differentiable", "fused")


def install(injected, watch):
    """Update the tables' rows before each step of Adam or AdamW, which then has the other parameters left."""
    if not injected.get(SETTING):
        return
    tables = Tables(injected, SETTING, _why_not)
    for kind in (Adam, AdamW):
        if "step" in vars(kind):  # in newer versions AdamW is a kind of Adam
            setattr(kind, "step", _step(tables, kind.step))  # noqa: B010


def _why_not(optimizer, group):
    if type(optimizer) not in (Adam, AdamW):
        return "tables are trained by other than Adam and AdamW"
    other = next((name for name in _OTHER_FORMS if group.get(name)), None)
    return other and "the optimizer has %s=True" % other


def _step(tables, original):
    @functools.wraps(original)
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        taken = []
        for group in self.param_groups:
            # Also of copies of the tables, which are none of those that were found.
            for weight in group["params"] if type(self) in (Adam, AdamW) and tables.found else ():
                gradient = weight.grad
                if gradient is not None and gradient.layout is torch.sparse_coo:
                    _update(self, group, weight, gradient.coalesce())
                    taken.append((weight, gradient))
                    weight.grad = None
        try:
            original(self)
        finally:
            for weight, gradient in taken:
                weight.grad = gradient
        return loss

    return step


@torch.no_grad()
def _update(optimizer, group, weight, gradient):
    """One step of Adam (Kingma and Ba, 2015) or AdamW (Loshchilov and Hutter, 2019) on the rows of a gradient."""
    state = optimizer.state[weight]
    if not state:
        state["step"] = torch.tensor(0.0)
        state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(weight), torch.zeros_like(weight)
    state["step"] += 1
    rows, values = gradient._indices()[0], gradient._values()
    if not len(rows):
        return
    rate, decay = float(group["lr"]), float(group["weight_decay"])
    first, second = map(float, group["betas"])
    new = weight.index_select(0, rows)
    if decay and (isinstance(optimizer, AdamW) or group.get("decoupled_weight_decay")):
        new.mul_(1.0 - rate * decay)
    elif decay:
        values = values.add(new, alpha=decay)
    mean = state["exp_avg"].index_select(0, rows).lerp_(values, 1.0 - first)
    square = state["exp_avg_sq"].index_select(0, rows).mul_(second).addcmul_(values, values, value=1.0 - second)
    state["exp_avg"].index_copy_(0, rows, mean)
    state["exp_avg_sq"].index_copy_(0, rows, square)
    steps = float(state["step"])
    denominator = square.sqrt_().div_((1.0 - second**steps) ** 0.5).add_(group["eps"])
    new.addcdiv_(mean, denominator, value=-rate / (1.0 - first**steps))
    weight.index_copy_(0, rows, new)
