"""A data set asked for the same samples twice, once the training is over: random ones differ."""

# untested: only in trainings that flatout ends, which save no coverage

from typing import Any

from ..packed_results import pack
from ..recorder import now

MOST_SAMPLES = 16  # of a flip in every second one, each would have to come out alike twice
BUDGET_NS = 500_000_000


def run(iterator, batches):
    """[samples, those that were the same both times]; None: there are none, or one is of a kind that is not compared.

    Args:
        iterator: of torch's DataLoader, over a data set with indices.
        batches: lists of indices, or indices, that it was asked for.
    """
    data_set: Any = iterator._dataset
    indices = [index for batch in batches for index in (batch if isinstance(batch, (list, tuple)) else [batch])]
    until_ns = now() + BUDGET_NS
    asked = same = 0
    for index in list(dict.fromkeys(indices))[:MOST_SAMPLES]:
        first = pack(data_set[index])
        if now() > until_ns:
            break
        second = pack(data_set[index])
        if first is None or second is None:
            return None
        asked += 1
        same += first == second
    return [asked, same] if asked else None
