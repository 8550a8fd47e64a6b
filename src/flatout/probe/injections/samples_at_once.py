"""A batch is taken out of a data set with one index for all its samples, where that gives the same as one by one.

A data set whose code does the same to each row is asked with an array of indices, as if it were one. What it answers
is compared with the batch that ``default_collate`` makes of single samples: whole batches at first, later a sample of
each. All other data sets are left alone, with the reason.
"""

import sys
from typing import Any

import torch
from torch.utils.data import Subset, default_collate

from .collated import Batch, Unlike, same_bits, take_the_place, tensors
from .row_code import why_not_by_row

_SETTING = "samples_at_once"
_COMPARED = 3  # batches
_LEAST = 8  # samples in a batch: fewer are no faster at once
_STRIDE = 7919  # between the places of compared samples: a prime, so that it comes to all places


def install(injected, watch):
    """Patch the fetch of data sets with indices."""
    numpy = sys.modules.get("numpy")
    if numpy is None:  # torch imports it where it is installed
        injected.refuse(_SETTING, "NumPy is not installed")
        return
    take_the_place(injected, _SETTING, lambda data_set: AtOnce(injected, data_set, numpy), why_not_by_row)


class AtOnce:
    """In place of a data set, for the fetch alone."""

    def __init__(self, injected, data_set, numpy):
        self._injected, self._data_set, self._numpy = injected, data_set, numpy
        self._seen = 0  # batches
        self._like: Any = None  # a collated batch: the kinds and types of values
        self._off = False

    def __getitem__(self, index):
        return self._data_set[index]

    def __getitems__(self, indices):
        """The samples, or the batch that is made of them."""
        asked = not self._off and len(indices) >= _LEAST
        if asked and self._seen >= _COMPARED:
            try:
                batch = self._later(indices)
            except Exception as error:
                self._refuse(error)
            else:
                self._seen += 1
                return Batch(batch)
        samples = [self._data_set[index] for index in indices]
        if asked and self._seen < _COMPARED:
            try:
                self._compare(samples, indices)
            except Exception as error:  # of the data set, which does not take arrays
                self._refuse(error)
            else:
                self._seen += 1
        return samples

    def _refuse(self, error):
        self._off = True
        self._injected.applied.pop(_SETTING, None)
        said = str(error) if type(error) is Unlike else "%s: %s" % (type(error).__name__, error)
        self._injected.refuse(_SETTING, said)

    def _compare(self, samples, indices):
        """Compare samples with what is given at once."""
        batch = default_collate(samples)
        if not all(map(same_bits, tensors(_in_form(self._asked(indices), batch, self._numpy)), tensors(batch))):
            raise Unlike("samples that are asked for at once differ from single ones")
        if self._seen + 1 == _COMPARED:
            self._like = batch
            self._injected.refused.pop(_SETTING, None)  # of another loader, such as that of the validation
            self._injected.done(_SETTING)

    def _later(self, indices):
        """A batch at once, of which one sample is compared."""
        batch = _in_form(self._asked(indices), self._like, self._numpy)
        place = self._seen * _STRIDE % len(indices)
        single = default_collate([self._data_set[indices[place]]])
        for values, expected in zip(tensors(batch), tensors(single)):
            if len(values) != len(indices) or not same_bits(values[place : place + 1], expected):
                raise Unlike("samples that are asked for at once differ from single ones")
        return batch

    def _asked(self, indices):
        data_set: Any = self._data_set
        while type(data_set) is Subset:
            indices = [data_set.indices[index] for index in indices]
            data_set = data_set.dataset
        return data_set[self._numpy.asarray(indices, dtype="int64")]


def _in_form(value, like, numpy):
    """What was asked for at once, as ``default_collate`` gives it.

    Args:
        value: as the data set gives it.
        like: a collated batch.
        numpy: the module.

    Raises:
        Unlike: it has another form.
    """
    if type(like) is torch.Tensor and isinstance(value, (torch.Tensor, numpy.ndarray)):
        tensor = torch.as_tensor(value)
        if type(tensor) is torch.Tensor and tensor.dtype == like.dtype and tensor.shape[1:] == like.shape[1:]:
            return tensor.contiguous()
    elif type(like) is list and type(value) in (list, tuple) and len(value) == len(like):
        return [_in_form(one, other, numpy) for one, other in zip(value, like)]
    elif type(like) is dict and type(value) is dict and list(value) == list(like):
        return {key: _in_form(value[key], like[key], numpy) for key in like}
    raise Unlike("samples that are asked for at once have another form than single ones")
