"""Seeds for generators that a script leaves unseeded, so that both runs of a pair draw the same random numbers.

A script that sets seeds does so later, and nothing is changed for it. Only the first Python process of a training, or
of each of its ranks, is seeded: processes that it starts draw numbers of their own, as ever.
"""

import os

from .contract import SEED_VARIABLE

_RANK_STEP = 1_000_003  # between the seeds of ranks


def begin(watch):
    """Seed what is imported from now on, if the environment gives a seed.

    Args:
        watch: ``watch(module, action)`` runs ``action`` after a module was imported.
    """
    given, _, seeded_rank = os.environ.get(SEED_VARIABLE, "").partition("/")
    rank = os.environ.get("RANK") or os.environ.get("LOCAL_RANK") or "none"
    if not given or rank == seeded_rank:  # a process that this training started
        return
    os.environ[SEED_VARIABLE] = given + "/" + rank
    seed = (int(given) + (_RANK_STEP * int(rank) if rank.isdigit() else 0)) % (1 << 32)
    watch("random", lambda random: random.seed(seed))
    watch("numpy.random", lambda numpy_random: _seed_numpy(numpy_random, seed))
    watch("torch", lambda torch: torch.manual_seed(seed))


def _seed_numpy(numpy_random, seed):
    import random

    numpy_random.seed(seed)
    entropy = random.Random(seed)
    # What SeedSequence draws where it is given nothing: ``default_rng()``, ``RandomState()``, environments of games.
    numpy_random.bit_generator.randbits = entropy.getrandbits
