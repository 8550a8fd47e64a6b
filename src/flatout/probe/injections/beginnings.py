"""The moments at which what a training has made can be looked up: passes over its loaders, and backward passes."""

import functools

import torch


def at_beginnings(look_up, watch, at_backward=None):
    """Call a function when a pass over a DataLoader begins, before its workers are forked, and at a backward pass.

    Args:
        look_up: called in the training, and when a worker that was not forked makes its fetcher.
        watch: runs an action after a module was imported.
        at_backward: called in its place at the first backward pass, of a training without a DataLoader.
    """
    watch("torch.utils.data.dataloader", functools.partial(_patch_loader, look_up))
    backward = torch.autograd.backward

    @functools.wraps(backward)
    def first_backward(*args, **kwargs):
        torch.autograd.backward = backward
        (at_backward or look_up)()
        return backward(*args, **kwargs)

    torch.autograd.backward = first_backward


def _patch_loader(look_up, module):
    begin, fetcher = module.DataLoader.__iter__, module._DatasetKind.create_fetcher

    @functools.wraps(begin)
    def __iter__(self):
        look_up()
        return begin(self)

    @functools.wraps(fetcher)
    def create_fetcher(*args, **kwargs):
        look_up()  # in a worker that was not forked
        return fetcher(*args, **kwargs)

    setattr(module.DataLoader, "__iter__", __iter__)  # noqa: B010 - mypy lets no method be assigned
    module._DatasetKind.create_fetcher = staticmethod(create_fetcher)
