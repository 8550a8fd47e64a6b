"""Scalars that are read from the GPU only when they are used: ``loss.item()`` does not wait."""

import functools
import math
import numbers

import torch


def install(injected, watch):
    """Patch ``Tensor.item`` for tensors that lie on a GPU."""
    original = torch.Tensor.item

    @functools.wraps(original)
    def item(self):
        if injected.get("lazy_scalars") and self.is_cuda and self.is_floating_point() and self.numel() == 1:
            injected.done("lazy_scalars")
            return LazyScalar(self.detach().clone(), original)
        return original(self)

    setattr(torch.Tensor, "item", item)  # noqa: B010 - a lazy scalar is no Number in the declared type


class LazyScalar(numbers.Real):
    """A float whose value is fetched when it is compared, formatted or converted; sums and products stay lazy."""

    __slots__ = ("_fetch", "_value")

    def __init__(self, value, fetch):
        self._value, self._fetch = value, fetch

    def __float__(self):
        if isinstance(self._value, torch.Tensor):
            self._value = float(self._fetch(self._value))
        return self._value

    def _with(self, other, operation):
        if isinstance(other, LazyScalar):
            other = other._value
        if isinstance(self._value, torch.Tensor) and isinstance(other, (int, float, torch.Tensor)):
            # In double precision, as a Python float is.
            return LazyScalar(operation(self._value.double(), other), self._fetch)
        return operation(float(self), other)

    def __add__(self, other):
        return self._with(other, lambda a, b: a + b)

    __radd__ = __add__

    def __sub__(self, other):
        return self._with(other, lambda a, b: a - b)

    def __rsub__(self, other):
        return self._with(other, lambda a, b: b - a)

    def __mul__(self, other):
        return self._with(other, lambda a, b: a * b)

    __rmul__ = __mul__

    def __truediv__(self, other):
        return self._with(other, lambda a, b: a / b)

    def __rtruediv__(self, other):
        return self._with(other, lambda a, b: b / a)

    def __neg__(self):
        return self._with(-1, lambda a, b: a * b)

    def __format__(self, spec):
        return format(float(self), spec)

    def __repr__(self):
        return repr(float(self))

    def __hash__(self):  # type: ignore[override]
        return hash(float(self))

    def __eq__(self, other):
        return float(self) == other

    def __lt__(self, other):
        return float(self) < _plain(other)

    def __le__(self, other):
        return float(self) <= _plain(other)

    def __gt__(self, other):
        return float(self) > _plain(other)

    def __ge__(self, other):
        return float(self) >= _plain(other)

    def __pos__(self):
        return self

    def __abs__(self):
        return abs(float(self))

    def __pow__(self, other):
        return float(self) ** other

    def __rpow__(self, other):
        return other ** float(self)

    def __floordiv__(self, other):
        return float(self) // other

    def __rfloordiv__(self, other):
        return other // float(self)

    def __mod__(self, other):
        return float(self) % other

    def __rmod__(self, other):
        return other % float(self)

    def __round__(self, digits=None):
        return round(float(self), digits)

    def __int__(self):
        return int(float(self))

    def __trunc__(self):
        return math.trunc(float(self))

    def __floor__(self):
        return math.floor(float(self))

    def __ceil__(self):
        return math.ceil(float(self))

    def __reduce__(self):
        return float, (float(self),)


def _plain(other):
    return float(other) if isinstance(other, LazyScalar) else other
