"""What the blocks of a live trial amount to, and when its pairs of blocks have decided. The runner reads it too."""

import math

LEAST_PAIRS = 2
# Student's t for one side, 95%, by pairs; more pairs count as the last of these.
_T = {2: 6.31, 3: 2.92, 4: 2.35, 5: 2.13}
# Of the logarithms of pairs: fewer than five do not show that they agree better.
_LEAST_SPREAD = 0.012
GAIN, NOTHING = "gain", "nothing"


def amount(delivered, batches, before, after, depth):
    """What a part of a block counts.

    Where workers are the slower side, what they made counts, not what was only taken out of their queue.

    Args:
        delivered: batches or samples.
        batches: of these.
        before: batches that were ready when the part began.
        after: when it ended.
        depth: batches that the workers have in flight together.
    """
    if batches and 2 * after < depth:
        return delivered * max(batches + after - before, 1) / batches
    return delivered


def verdict(pairs, threshold):
    """Whether pairs of rates decide.

    Args:
        pairs: (rate without, rate with) of pairs of blocks.
        threshold: relative gain that counts.

    Returns:
        GAIN or NOTHING; None: they do not decide.
    """
    if len(pairs) < LEAST_PAIRS or min(map(min, pairs)) <= 0:
        return None
    logs = [math.log(after / before) for before, after in pairs]
    mean = sum(logs) / len(logs)
    spread = math.sqrt(sum((one - mean) ** 2 for one in logs) / (len(logs) - 1))
    half = _T[min(len(logs), max(_T))] * max(spread, _LEAST_SPREAD) / math.sqrt(len(logs))
    if mean - half > math.log1p(threshold):
        return GAIN
    if mean + half < math.log1p(threshold):
        return NOTHING
    return None
