"""What a loss over classes leaves out: positions that it ignores or padding fills, and classes that never occur."""

from typing import Any

import torch

from ..recorder import REC

_LOSSES = ("nll_loss_forward", "nll_loss2d_forward")
_GRADIENT = "_log_softmax_backward_data"
_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")


class LossTargets:
    """Looks at the losses and the embedding tables of the operators that it is shown.

    A loss by hand, such as one with smoothed labels and a mask, leaves positions whose probabilities get no gradient.
    They are ignored if they are as many as a comparison of whole numbers has told apart in the step, as of words with
    that of padding. What a loss leaves out by the probabilities themselves, such as all but the hardest, it needs.
    """

    def __init__(self):
        self._found: Any = None  # of the largest loss
        self._by_hand: Any = {}  # classes and positions -> fewest that were ignored in a step
        self._highest: Any = {}  # rows of an embedding table -> the highest index that was looked up, and how many
        self._compared: Any = set()  # elements of a comparison of whole numbers, and those that are true, or false

    def look(self, name, args):
        """Look at an operator before it runs.

        Args:
            name: of the operator, without its overload.
            args: as it was called.
        """
        if name == "embedding":
            rows, indices = len(args[0]), args[1]
            if indices.numel():
                highest, count = self._highest.get(rows, (-1, 0))
                self._highest[rows] = max(highest, int(indices.max())), count + indices.numel()
        elif name in _LOSSES:
            self._note(args[0], args[1], args[4])
        elif name == _GRADIENT and args[0].dim() > 1 and args[0].numel():
            self._graded(args[0], args[2])

    def made(self, name, args, result):
        """Look at what an operator gave that runs in no backward pass."""
        # A mask that is compared, with True or False, may have come from probabilities.
        whole = name in _COMPARISONS and not args[0].is_floating_point() and args[0].dtype is not torch.bool
        if whole and result.numel() > 1:
            true = int(result.sum())
            self._compared |= {(result.numel(), true), (result.numel(), result.numel() - true)}

    def end(self):
        """End a step."""
        self._compared = set()

    def _graded(self, gradient, dimension):
        classes = gradient.shape[dimension]
        positions = gradient.numel() // classes
        ignored = positions - int(gradient.any(dimension).sum())
        # Words are compared with those before them, too, of which a loss leaves out the first.
        if not any(positions <= count <= 2 * positions and part == ignored for count, part in self._compared):
            ignored = 0
        before = self._by_hand.get((classes, positions), positions)
        self._by_hand[classes, positions] = min(before, ignored)

    def _note(self, values, targets, ignored):
        positions = targets.numel()
        if not positions or values.dim() < 2:
            return
        classes = values.shape[1]
        if self._found is None or positions * classes > self._found["positions"] * self._found["classes"]:
            self._found = {
                "classes": classes,
                "positions": positions,
                "ignored": int((targets == ignored).sum()),
                "highest": int(targets.max()),
            }

    def save(self):
        """Write into the record what was seen."""
        found = self._found
        largest = max(self._by_hand, key=lambda key: (key[0] * key[1], key), default=(0, 0))
        classes, positions = largest
        larger = found is None or classes * positions > found["classes"] * found["positions"]
        if larger and self._by_hand.get(largest):
            found = {
                "classes": classes,
                "positions": positions,
                "ignored": self._by_hand[largest],
                "highest": classes - 1,
            }
        if found is None:
            return
        # A table with as many rows as there are classes has the same ones.
        highest, count = self._highest.get(found["classes"], (-1, 0))
        REC.save_process(loss_targets=dict(found, highest=max(highest, found["highest"]), looked_up=count))
