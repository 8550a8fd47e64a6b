"""A cause inside the step: modules that do not train compute the same in every pass."""

from __future__ import annotations

from flatout.diagnose.cause import NO_STEP, Found, Lacks, cause
from flatout.diagnose.evidence import hottest
from flatout.measure.frozen_modules import FrozenModules
from flatout.predict.context import Context
from flatout.predict.step_changes import without_features
from flatout.results import Cause, Evidence
from flatout.units import counted, duration, percent

_LEAST = 0.1  # of the time: keeping features takes memory, and a pass to make them
_DOMINANT = 0.5


def _makes_again(context: Context, found: Cause) -> str:
    title = f"{found.title[:1].upper()}{found.title[1:]}"
    return f"{title}: from the second pass on that is {percent(found.share)} of the time."


@cause(
    "training",
    # Whatever else such modules could do faster, they need not do at all.
    hides=("overhead_bound", "small_batch", "too_many_threads", "too_few_threads", "page_faults"),
    hides_from=_DOMINANT,
    sentence=_makes_again,
)
def frozen_features(context: Context) -> Found | Lacks | None:
    """Modules that do not train compute the same features of the same samples in every pass."""
    frozen = context.run.frozen_modules
    if context.fitted is None:
        return Lacks(NO_STEP)
    if frozen is None or frozen.same_samples is False:
        return None
    loader = context.run.loading
    if frozen.same_samples is None and (loader is None or loader.settings.dataset_len is None):
        return None  # what a game, a memory of it or a stream gives may never come again
    share = context.model.recovered(without_features(context, frozen.seconds))
    if share < _LEAST:
        return None
    return Found(
        title=f"{_named(frozen)} does not train, and computes the same features in every pass",
        share=share,
        confidence=0.8 if frozen.same_samples else 0.5,
        evidence=(
            Evidence(
                f"its calls take {duration(frozen.seconds)} of a step, give no gradient, and its weights stayed the "
                "same in steps after the window",
                {"seconds": frozen.seconds, "modules": len(frozen.modules)},
            ),
            Evidence(
                "the data set gave the same samples when it was asked twice"
                if frozen.same_samples
                else "whether samples come again as they were is not known: random transforms would forbid it"
            ),
            *hottest(context.run.lines("forward"), 1),
        ),
    )


def _named(frozen: FrozenModules) -> str:
    first, *others = frozen.modules
    return first.name if frozen.alone is not None else f"{first.name} with {counted(len(others), 'other module')}"
