"""Losses and accuracies of a line, under one spelling: train_loss, val_loss, val_acc1, val_acc5."""

from __future__ import annotations

import re

# Behind the name of an accuracy, the scale that its line gives: none, or percent as "Acc@1" is by custom.
BARE, CUSTOM = "?", "@"
_METRIC = re.compile(
    r"""(?ix)
    (?<![\w.]) ["']? (?P<split> (?: train(?:ing)? | val(?:id(?:ation)?)? | test | eval )? )
    [\s_/.-]{0,2}
    (?P<name> loss
      | acc(?:uracy)?
        (?: [_@-]?(?:top[-_]?)?[15](?![\d.,]|\s?[%/]) | \s(?:top[-_]?)?[15](?=\s?[:=]) | \stop[-_]?[15](?!\d) )?
      | top[-_]?[15](?!\d)(?:[\s_-]?acc(?:uracy)?)? ) (?:_epoch|_step)? ["']?
    (?: \s of\ the\ (?:network|model)\ on\ (?:the\ )? (?:\d+\ )? (?P<on> train | val | test )\w*\ images )?
    \s* (?: [:=] | \bis\b | \s )? \s* ["']? (?P<value> -?\d+(?:\.\d+|,\d+(?![.,]?\d))?(?:e[+-]?\d+)? | nan | -?inf )
    (?P<percent> \s?% )? (?: \s?/\s? (?P<of> \d+ ) (?![\d.]) )?"""
)
_CHEAP = re.compile(r"loss|acc|top", re.IGNORECASE)


def named_metrics(text: str) -> dict[str, float]:
    """Metrics by name; what has no split named is "loss" or "acc1".

    Accuracies are from 0 to 1. Where the line does not say their scale, they stand as written and their name ends
    in ``BARE``; in ``CUSTOM`` where they are in percent by custom: ``Percentages`` takes the ends off again.
    """
    if not _CHEAP.search(text):
        return {}
    found = {}
    for one in _METRIC.finditer(text):
        name = canonical(one["split"] or one["on"] or "", one["name"])
        value = float(one["value"].replace(",", "."))
        if "acc" in name:
            if one["of"]:  # 9832/10000: so many were right
                value = value / float(one["of"]) if float(one["of"]) else -1.0
            elif one["percent"]:
                value /= 100
            # PyTorch's ImageNet example and those after it print Acc@1 in percent: "0.10" is a thousandth.
            elif "@" in one["name"]:
                name, value = name + CUSTOM, value / 100
            else:
                name += BARE
            if not 0 <= value <= (100 if name.endswith(BARE) else 1):
                continue
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
