"""The optimizer: its fused form, a scaled learning rate, and steps that gather several backward passes."""

import functools
import inspect

from torch import optim, zeros_like
from torch.optim import Optimizer


def install(injected, watch):
    """Patch the optimizers of torch."""
    form, factor, passes = injected.get("optimizer_form"), injected.get("lr_factor"), injected.get("accumulate")
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


class _State:
    __slots__ = ("inside",)

    def __init__(self):
        self.inside = False  # an optimizer's own __init__ may be built on another one's


_state = _State()


def _formed(original, form, injected):
    @functools.wraps(original)
    def __init__(self, *args, **kwargs):
        if _state.inside:
            return original(self, *args, **kwargs)
        _state.inside = True
        try:
            return formed(self, *args, **kwargs)
        finally:
            _state.inside = False

    def formed(self, *args, **kwargs):
        if args:  # a generator of weights is empty the second time
            args = (list(args[0]), *args[1:])
        if form == "fused" and isinstance(self, optim.SGD) and (kwargs.get("dampening") or len(args) > 3):
            injected.refuse("optimizer_form", "SGD with dampening")  # its first step differs, see below
            return original(self, *args, **kwargs)
        if kwargs.get("fused") or kwargs.get("foreach") or kwargs.get("differentiable"):
            injected.refuse("optimizer_form", "the script chooses a form itself")
            return original(self, *args, **kwargs)
        try:
            original(self, *args, **{**kwargs, form: True})
        except (RuntimeError, ValueError, TypeError) as error:
            injected.refuse("optimizer_form", str(error).splitlines()[0])
            return original(self, *args, **kwargs)
        if form == "fused" and isinstance(self, optim.SGD) and self.defaults["momentum"]:
            self.register_step_pre_hook(_begin_momentum)
        injected.done("optimizer_form")
        return None

    return __init__


def _begin_momentum(optimizer, args, kwargs):
    """Begin with a momentum of zero.

    The fused SGD of torch allocates it in its first step and fills it there, unless a gradient scaler skips that step
    for an overflow in float16: the second step then starts from uninitialised memory.
    """
    for group in optimizer.param_groups:
        for weight in group["params"]:
            if weight.grad is not None and optimizer.state[weight].get("momentum_buffer") is None:
                optimizer.state[weight]["momentum_buffer"] = zeros_like(weight.grad)


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
