"""How the learning rate follows the batch size: rules from the literature, by the kind of optimizer."""

from __future__ import annotations

import math
from dataclasses import dataclass

LINEAR, SQUARE_ROOT = "linear", "sqrt"
RULES = (LINEAR, SQUARE_ROOT)
SOURCES = {
    LINEAR: "Goyal et al., Accurate, large minibatch SGD (2017)",
    SQUARE_ROOT: "Malladi et al., On the SDEs and scaling rules for adaptive gradient algorithms (2022)",
}
# Their step is proportional to the gradient; that of all others is divided by a measure of its size.
_PROPORTIONAL = ("SGD", "ASGD", "Muon")
_FACTORS = {LINEAR: lambda ratio: ratio, SQUARE_ROOT: math.sqrt}


@dataclass(frozen=True)
class Scaling:
    """What the learning rate is multiplied by.

    Attributes:
        rule: one of RULES.
        factor: on the learning rate.
        source: of the rule.
        because: why this rule.
    """

    rule: str
    factor: float
    source: str
    because: str


def scaling(ratio: float, optimizer: str | None, rule: str | None = None) -> Scaling:
    """The learning rate's factor where the batch is multiplied by ``ratio``.

    Linear for plain and momentum SGD: k steps with a small rate go about as far as one with k times the rate, as long
    as the gradient hardly changes meanwhile. Square root for optimizers that divide the gradient by its own size (Adam,
    RMSprop and their relatives): the noise of that quotient falls with the root of the batch.

    Args:
        ratio: new over old batch size.
        optimizer: its class; None: unknown.
        rule: the user's choice; None: by the optimizer.
    """
    because = "as you chose"
    if rule is None:
        rule = LINEAR if optimizer in _PROPORTIONAL else SQUARE_ROOT
        because = f"for {optimizer}" if optimizer else "the smaller of the two factors, as the optimizer was not seen"
    return Scaling(rule, _FACTORS[rule](ratio), SOURCES[rule], because)
