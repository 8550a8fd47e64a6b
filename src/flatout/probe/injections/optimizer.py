"""The optimizer: its fused form, a scaled learning rate, and steps that gather several backward passes."""

import functools
import inspect

from torch import optim
from torch.optim import Optimizer

SETTINGS = ("optimizer_form", "lr_factor", "accumulate")


def install(injected, watch):
    """Patch the optimizers that torch brings."""
    form, factor, passes = (injected.get(name) for name in SETTINGS)
    if form is not None and form not in ("fused", "foreach"):
        injected.refuse("optimizer_form", "%r is neither fused nor foreach" % (form,))
    elif form is not None:
        for kind in vars(optim).values():
            if inspect.isclass(kind) and form in inspect.signature(kind.__init__).parameters:
                setattr(kind, "__init__", _formed(kind.__init__, form, injected))  # noqa: B010 - as below
    if factor is not None:
        setattr(Optimizer, "__init__", _scaled(Optimizer.__init__, float(factor), injected))  # noqa: B010 - mypy lets no method be assigned
    if passes is not None and int(passes) > 1:
        _gather(int(passes), injected)


_inside = [False]  # an optimizer's own __init__ may be built on another one's


def _formed(original, form, injected):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        if _inside[0]:
            return original(self, *args, **kwargs)
        _inside[0] = True
        try:
            return formed(self, *args, **kwargs)
        finally:
            _inside[0] = False

    def formed(self, *args, **kwargs):
        if args:  # a generator of weights is empty the second time
            args = (list(args[0]), *args[1:])
        if kwargs.get("fused") or kwargs.get("foreach") or kwargs.get("differentiable"):
            injected.refuse("optimizer_form", "the script chooses a form itself")
            return original(self, *args, **kwargs)
        try:
            original(self, *args, **{**kwargs, form: True})
        except (RuntimeError, ValueError, TypeError) as error:
            injected.refuse("optimizer_form", str(error).splitlines()[0])
            return original(self, *args, **kwargs)
        injected.done("optimizer_form")
        return None

    return __init__


def _scaled(original, factor, injected):
    """Learning rates proportional to the batch (Goyal et al., 2017); schedulers are made from them later."""

    @functools.wraps(original)
    def __init__(self, params, defaults):
        original(self, params, defaults)
        for group in self.param_groups:
            if "lr" in group:
                group["lr"] = group["lr"] * factor
        injected.done("lr_factor")

    return __init__


def _gather(passes, injected):
    """Step and zero_grad act at every ``passes``-th call; gradients are averaged, as the loss of one large batch is."""
    calls: dict[int, int] = {}  # id of an optimizer -> steps asked for since the last one that was done
    decorate, zero = Optimizer.profile_hook_step, Optimizer.zero_grad

    def decorator(step):
        inner = decorate(step)

        @functools.wraps(step)
        def gathered(self, closure=None):
            if closure is not None:
                injected.refuse("accumulate", "the optimizer is given a closure")
                return inner(self, closure)
            count = calls[id(self)] = calls.get(id(self), 0) + 1
            if count < passes:
                return None
            calls[id(self)] = 0
            for group in self.param_groups:
                for weight in group["params"]:
                    if weight.grad is not None:
                        weight.grad.div_(passes)
            injected.done("accumulate")
            return inner(self)

        setattr(gathered, "hooked", True)  # noqa: B010 - mypy knows no attributes of functions
        return gathered

    @functools.wraps(zero)
    def zero_grad(self, *args, **kwargs):
        if not calls.get(id(self)):
            zero(self, *args, **kwargs)

    setattr(Optimizer, "profile_hook_step", staticmethod(decorator))  # noqa: B010 - its declared type names the argument
    Optimizer.zero_grad = zero_grad
