"""Batches in the form in which ``default_collate`` makes them of samples, made in another way."""

import functools
from typing import Any

import torch
from torch.utils.data import Subset, default_collate
from torch.utils.data._utils import fetch as fetchers


class Unlike(Exception):
    """What was made in another way differs, or may differ, from the batch of single samples; the text says why."""


class Batch:
    """A batch in place of its samples."""

    def __init__(self, value):
        self.value = value


def take_the_place(injected, setting, make, why_not=lambda data_set: None):
    """Have fetchers ask something else in place of their data sets; what gives a ``Batch`` gives a whole one.

    Args:
        injected: the settings of this process.
        setting: refused where batches are made in another way.
        make: makes it of a data set, for one fetcher.
        why_not: says of the innermost data set why it is left alone; None: it is not.
    """
    original = fetchers._MapDatasetFetcher.fetch
    known: Any = "_flatout_" + setting

    @functools.wraps(original)
    def fetch(self, possibly_batched_index):
        if not hasattr(self, known):
            setattr(self, known, True)
            try:
                why = _why_not(self) or why_not(innermost(self.dataset))
                if why is None:
                    self.dataset, self.collate_fn = make(self.dataset), _collated
            except Exception as error:  # attributes of the data set's may run code of their own
                why = "%s: %s" % (type(error).__name__, error)
            if why is not None and setting not in injected.applied:
                injected.refuse(setting, why)
        return original(self, possibly_batched_index)

    setattr(fetchers._MapDatasetFetcher, "fetch", fetch)  # noqa: B010


def _why_not(fetcher):
    if fetcher.collate_fn is _collated:
        return "another setting makes its batches"
    if not fetcher.auto_collation or fetcher.collate_fn is not default_collate:
        return "samples are not put together by default_collate"
    if getattr(innermost(fetcher.dataset), "__getitems__", None):
        return "the data set makes whole batches itself"
    return None


def _collated(samples):
    return samples.value if type(samples) is Batch else default_collate(samples)


def innermost(data_set):
    """The data set of which torch's Subset takes a part."""
    while type(data_set) is Subset:
        data_set = data_set.dataset
    return data_set


def tensors(batch):
    """The tensors of a collated batch, in order.

    Raises:
        Unlike: it has other values, too.
    """
    if type(batch) is torch.Tensor:
        return [batch]
    if type(batch) not in (dict, list):
        raise Unlike("samples hold values that are no numbers")
    parts = batch.values() if isinstance(batch, dict) else batch
    return [tensor for part in parts for tensor in tensors(part)]


def filled(like, values):
    """A batch of the same form.

    Args:
        like: a collated batch.
        values: an iterator of tensors, in the order of ``tensors``.
    """
    if isinstance(like, torch.Tensor):
        return next(values)
    if isinstance(like, dict):
        return {key: filled(part, values) for key, part in like.items()}
    return [filled(part, values) for part in like]


def same_bits(one, other):
    """True if two tensors have all bits and strides in common, also those of NaN."""
    if one.dtype != other.dtype or one.shape != other.shape or one.stride() != other.stride():
        return False
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
