"""Embedding tables of plain SGD get sparse gradients: a step makes and applies those of its own rows only.

The update of each row is the same but for the order of sums. With momentum or weight decay, and with other optimizers,
rows that no batch takes change too: those tables stay as they are (see ``sparse_adam``).
"""

import functools

import torch
from torch.optim import SGD, Optimizer

from ..collected_objects import collected_objects
from .clipping import clip_rows_of_sparse_gradients

SETTING = "sparse_embeddings"
_MARK = "_flatout_sparse"  # of a table whose gradients are sparse, and of its copies
_LEAST_VALUES = 250_000  # of a table: smaller ones take less time than the handling of indices


def install(injected, watch):
    """Check each step of SGD as well: a schedule of the script's may give it momentum or weight decay."""
    if injected.get(SETTING):
        tables = Tables(injected, SETTING, _why_not)
        step = SGD.step

        @functools.wraps(step)
        def checked_step(self, *args, **kwargs):
            if any(_moves_all_rows(group) and tables.among(group) for group in self.param_groups):
                tables.make_dense("the optimizer has got momentum or weight decay")
            return step(self, *args, **kwargs)

        setattr(SGD, "step", checked_step)  # noqa: B010


def _why_not(optimizer, group):
    if type(optimizer) is not SGD or _moves_all_rows(group) or group.get("fused"):
        return "tables are trained by other than SGD without momentum and weight decay"
    return None


def _moves_all_rows(group):
    return group["momentum"] or group["weight_decay"]


class Tables:
    """The embedding tables whose gradients are sparse: looked for whenever an optimizer is given parameters.

    Args:
        injected: the settings.
        setting: that makes them sparse.
        why_not: says of an optimizer and a group why its tables stay as they are; None: they need not.
    """

    def __init__(self, injected, setting, why_not):
        self._injected, self._setting, self._why_not = injected, setting, why_not
        self._modules = []
        original = Optimizer.add_param_group

        @functools.wraps(original)
        def add_param_group(optimizer, param_group):
            original(optimizer, param_group)
            self._added(optimizer)

        setattr(Optimizer, "add_param_group", add_param_group)  # noqa: B010
        clip_rows_of_sparse_gradients()

    def _added(self, optimizer):
        """Make the gradients of the newest group's tables sparse, where that is allowed."""
        try:
            self._make_sparse(optimizer, optimizer.param_groups[-1])
        except Exception as error:  # a module that is being made, or a parameter without a shape
            self._injected.refuse(self._setting, "%s: %s" % (type(error).__name__, error))

    def _make_sparse(self, optimizer, group):
        weights = {id(one) for one in group["params"] if one.dim() == 2 and one.numel() >= _LEAST_VALUES}
        objects = collected_objects() if weights else []
        modules = [one for one in objects if _is_table(one) and id(one.weight) in weights]
        if not modules:
            return
        why = self._why_not(optimizer, group)
        if why is not None and any(getattr(one, _MARK, False) for one in modules):
            for one in modules:
                one.sparse = False  # of an optimizer that takes no sparse gradients
            self.make_dense(why)
            return
        if why is None and torch.distributed.is_available() and torch.distributed.is_initialized():
            why = "other processes' gradients are dense"
        if why is None and any(getattr(one.weight, "_backward_hooks", None) for one in modules):
            why = "hooks of the script's get the gradients of tables"
        if why is not None:
            self._injected.refuse(self._setting, why)
            return
        for module in modules:
            module.sparse = True
            setattr(module, _MARK, True)
        self._modules += modules
        self._injected.done(self._setting)

    @property
    def found(self):
        """True if there are such tables."""
        return bool(self._modules)

    def among(self, group):
        """The weights of such tables in a group of an optimizer."""
        weights = {id(one.weight) for one in self._modules}
        return [one for one in group["params"] if id(one) in weights] if weights else []

    def make_dense(self, why):
        """Gradients are dense from now on."""
        if not self._modules:
            return
        for module in self._modules:
            module.sparse = False
            if module.weight.grad is not None:
                module.weight.grad = module.weight.grad.to_dense()
        self._modules = []
        self._injected.applied.pop(self._setting, None)
        self._injected.refuse(self._setting, why)


def _is_table(one):
    # By its type: asking some objects for their class runs their code.
    kind = type(one)
    return (
        issubclass(kind, (torch.nn.Embedding, torch.nn.EmbeddingBag))
        and (not one.sparse or vars(one).get(_MARK, False))
        and not one.scale_grad_by_freq
        and getattr(one, "mode", "") != "max"
    )
