"""Features of modules that do not train, made once."""

from __future__ import annotations

import re

from flatout.predict.context import Context
from flatout.predict.fetch_changes import samples_there_are
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import without_features
from flatout.probe.settings import SETTINGS
from flatout.remedies.decoding import MEMORY_SHARE, wanted_room
from flatout.remedies.proposal import NUMERICS, Proposal, remedy
from flatout.results import Cause
from flatout.units import size

# Part of such a module's time that finding and copying stored features takes, usually, at the least and at the most.
_LEFT, _LEAST_LEFT, _MOST_LEFT = 0.1, 0.02, 0.3


@remedy(("frozen_features",), NUMERICS, risk="medium", mechanics="shared_samples")
def features_once(context: Context, cause: Cause) -> Proposal | None:
    """Keep what a frozen module gives for each sample."""
    frozen, available = context.run.frozen_modules, context.run.usage.available_bytes
    if frozen is None or available is None or frozen.same_samples is False:
        return None
    loader, alone = context.run.loading, frozen.alone
    samples = samples_there_are(loader) if loader is not None else None
    needed = None if samples is None else round(samples * frozen.sample_bytes)
    room = int(MEMORY_SHARE * available)
    if needed is not None and needed > room:
        return None
    settings = None
    if alone is not None:
        settings = {"sample_cache_bytes": wanted_room(needed, room) if needed else room, "features_once": alone.name}

    def without(left: float) -> Change:
        return without_features(context, (1.0 - left) * frozen.seconds)

    return Proposal(
        title=f"compute the features of {(alone or frozen.modules[0]).name} once"
        + ("" if needed is None else f": {size(needed)} of memory hold them all"),
        change=without(_LEFT),
        least=without(_MOST_LEFT) if frozen.same_samples else Change(),
        most=without(_LEAST_LEFT),
        how="one pass before the training that stores what it gives for each sample, under torch.no_grad() and "
        "eval(); then these in place of the samples, or beside them by index where other parts need the samples too",
        settings=settings if alone is not None and re.fullmatch(SETTINGS["features_once"].form, alone.name) else None,
        basis="measured time of its calls, from the second pass on; assumes that finding and copying what is stored "
        "takes a tenth of it" + ("" if frozen.same_samples else ", and that samples come again as they were"),
        memory_bytes=needed,
    )
