"""Tensors inside tuples, lists and dictionaries."""

import copy

import torch


def mapped(value, wanted, change):
    """The same value with each tensor for which ``wanted`` is true replaced by what ``change`` makes of it."""
    if isinstance(value, torch.Tensor):
        return change(value) if wanted(value) else value
    if isinstance(value, dict):
        made = {name: mapped(part, wanted, change) for name, part in value.items()}
        if type(value) is dict:
            return made
        copied = copy.copy(value)  # a subclass of dict, such as the outputs of transformers
        for name, part in made.items():
            copied[name] = part
        return copied
    if type(value) in (tuple, list):
        return type(value)(mapped(part, wanted, change) for part in value)
    return value
