"""The model alone, on an input of the training and on that input joined to itself: what of its passes grows with it.

For trainings whose batches no DataLoader gives; of others, whole steps are measured. The passes run between two steps,
after the window; gradients, buffers and random numbers are as before afterwards.
"""

from ..kept_batches import NotDoubled
from ..module_passes import ModulePasses, same_random_numbers
from ..recorder import now

ROUNDS = 7
BUDGET_NS = 1_500_000_000


def measured(calls, lacking):
    """For the record: samples and ns of the passes with them and with twice as many; or why there are none.

    Args:
        calls: of the training's models in a step.
        lacking: why there are none, if there are none.
    """
    if not calls:
        return {"skipped": lacking}
    try:
        passes = [ModulePasses(call.module, call.args, call.named) for call in calls]
        inputs = [([one.args], [one.joined(2)]) for one in passes]
        single_ns, doubled_ns = [], []
        begun_ns = now()
        with same_random_numbers():
            for number in range(ROUNDS + 1):
                pair = [sum(one.take_ns(given[twice]) for one, given in zip(passes, inputs)) for twice in (0, 1)]
                if number:  # memory is reserved in the first
                    single_ns.append(pair[0])
                    doubled_ns.append(pair[1])
                if now() - begun_ns > BUDGET_NS:
                    break
    except NotDoubled as error:
        return {"skipped": str(error)}
    except Exception as error:
        return {"skipped": "it raised %s: %s" % (type(error).__name__, str(error)[:200])}
    return {"samples": passes[0].size, "single_ns": single_ns, "doubled_ns": doubled_ns}
