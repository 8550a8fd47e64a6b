"""Losses and accuracies of a line, under one spelling: train_loss, val_loss, val_acc1, val_acc5."""

from __future__ import annotations

import re

_METRIC = re.compile(
    r"""(?ix)
    (?<![\w.]) ["']? (?P<split> (?: train(?:ing)? | val(?:id(?:ation)?)? | test | eval )? )
    [\s_/.-]{0,2}
    (?P<name> loss | acc(?:uracy)?(?:[\s_@-]?(?:top[-_]?)?[15](?![.,]?\d))?
      | top[-_]?[15](?:[\s_-]?acc(?:uracy)?)? ) (?:_epoch|_step)? ["']?
    \s* (?: [:=] | \bis\b | \s )? \s* ["']? (?P<value> -?\d+(?:\.\d+|,\d+(?![.,]?\d))?(?:e[+-]?\d+)? | nan | -?inf )
    (?: (?P<percent> \s?% ) | \s?/\s? (?P<of> \d+ ) \b )?"""
)
_CHEAP = re.compile(r"loss|acc|top", re.IGNORECASE)


def named_metrics(text: str) -> dict[str, float]:
    """Metrics by name; accuracies from 0 to 1. What has no split named is "loss" or "acc1"."""
    if not _CHEAP.search(text):
        return {}
    found = {}
    for one in _METRIC.finditer(text):
        name = canonical(one["split"], one["name"])
        value = float(one["value"].replace(",", "."))
        # PyTorch's ImageNet example and those after it print Acc@1 in percent: "0.10" is a thousandth.
        if "acc" in name and not one["of"] and (one["percent"] or "@" in one["name"] or 1 < value <= 100):
            value /= 100
        if "acc" in name and one["of"] and 0 <= float(one["value"]) <= float(one["of"]) and float(one["of"]):
            value = float(one["value"]) / float(one["of"])  # 9832/10000
        found[name] = value
    return found


def canonical(split: str, name: str) -> str:
    """One spelling for the name of a metric."""
    name = name.lower()
    if name != "loss":
        name = "acc5" if "5" in name else "acc1"
    split = split.lower()
    if split.startswith("train"):
        return f"train_{name}"
    return f"val_{name}" if split else name
