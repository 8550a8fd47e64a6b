"""Embedding tables of plain SGD get sparse gradients: a step makes and applies those of its own rows only.

The update of each row is the same but for the order of sums. With momentum or weight decay, and with other optimizers,
rows that no batch takes change too: those tables stay as they are.
"""

import functools
import gc

import torch
from torch.optim import SGD, Optimizer

from .clipping import before_clipping

SETTING = "sparse_embeddings"
_LEAST_VALUES = 1_000_000  # of a table: smaller ones take less time than the handling of indices


def install(injected, watch):
    """Look for tables whenever an optimizer is given parameters: a model is there by then."""
    if injected.get(SETTING):
        tables = _Tables(injected)
        original = Optimizer.add_param_group

        @functools.wraps(original)
        def add_param_group(self, param_group):
            original(self, param_group)
            tables.added(self)

        setattr(Optimizer, "add_param_group", add_param_group)  # noqa: B010
        before_clipping(lambda: tables.make_dense("gradients are clipped"), "clip_grad_norm_", "clip_grad_value_")
        step = SGD.step

        @functools.wraps(step)
        def checked_step(self, *args, **kwargs):
            tables.before_step(self)
            return step(self, *args, **kwargs)

        setattr(SGD, "step", checked_step)  # noqa: B010


class _Tables:
    def __init__(self, injected):
        self._injected = injected
        self._modules = []

    def added(self, optimizer):
        """Make the gradients of the newest group's tables sparse, where that changes no update."""
        try:
            self._make_sparse(optimizer, optimizer.param_groups[-1])
        except Exception as error:  # a module that is being made, or a parameter without a shape
            self._injected.refuse(SETTING, "%s: %s" % (type(error).__name__, error))

    def _make_sparse(self, optimizer, group):
        weights = {id(one) for one in group["params"] if one.dim() == 2 and one.numel() >= _LEAST_VALUES}
        modules = [one for one in gc.get_objects() if _is_table(one) and id(one.weight) in weights] if weights else []
        if not modules:
            return
        if type(optimizer) is not SGD or group["momentum"] or group["weight_decay"] or group.get("fused"):
            self._injected.refuse(SETTING, "tables are trained by other than SGD without momentum and weight decay")
            return
        if torch.distributed.is_available() and torch.distributed.is_initialized():
            self._injected.refuse(SETTING, "other processes' gradients are dense")
            return
        for module in modules:
            module.sparse = True
        self._modules += modules
        self._injected.done(SETTING)

    def before_step(self, optimizer):
        """A schedule of the script's may give an optimizer momentum or weight decay."""
        weights = {id(one.weight) for one in self._modules}
        for group in optimizer.param_groups if weights else ():
            if (group["momentum"] or group["weight_decay"]) and any(id(one) in weights for one in group["params"]):
                self.make_dense("the optimizer has got momentum or weight decay")
                return

    def make_dense(self, why):
        """Gradients are dense from now on."""
        if not self._modules:
            return
        for module in self._modules:
            module.sparse = False
            if module.weight.grad is not None:
                module.weight.grad = module.weight.grad.to_dense()
        self._modules = []
        self._injected.applied.pop(SETTING, None)
        self._injected.refuse(SETTING, why)


def _is_table(one):
    # By its type: asking some objects for their class runs their code.
    kind = type(one)
    return (
        issubclass(kind, (torch.nn.Embedding, torch.nn.EmbeddingBag))
        and not one.sparse
        and not one.scale_grad_by_freq
        and getattr(one, "mode", "") != "max"
    )
