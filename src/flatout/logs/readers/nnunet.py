"""nnU-Net's training log: one block of lines an epoch, each with its time."""

from __future__ import annotations

import re

from flatout.logs.observations import Kind, Observation

CUE = rb"Epoch time:|Pseudo dice|: (?:train|val)_loss |: Epoch \d+ *$"
_TIME = re.compile(r"Epoch time: ([\d.]+) s")
_LOSS = re.compile(r": (train|val)_loss (-?[\d.]+|nan)")
_DICE = re.compile(r"Pseudo dice \[?([^\]]*)")
_NUMBER = re.compile(r"(?<![\w.])\d+\.\d+(?![\w])")
_EPOCH = re.compile(r": Epoch (\d+)\s*$")


def parse(text: str) -> list[Observation]:
    """One line; its epoch is that of the last "Epoch n" line, which the digest keeps."""
    if found := _TIME.search(text):
        return [Observation(Kind.EPOCH, {"seconds": float(found[1])}, {"of": "nnU-Net"})]
    if found := _LOSS.search(text):
        return [Observation(Kind.METRICS, {f"{found[1]}_loss": float(found[2])})]
    if found := _DICE.search(text):
        dice = [float(value) for value in _NUMBER.findall(found[1])]
        return [Observation(Kind.METRICS, {"val_dice": sum(dice) / len(dice)})] if dice else []
    if found := _EPOCH.search(text):
        return [Observation(Kind.EPOCH, {"begins": float(found[1])}, {"of": "nnU-Net"})]
    return []
