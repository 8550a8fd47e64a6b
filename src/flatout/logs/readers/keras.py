"""Lines of Keras's fit: "196/196 [=====] - 457s 2s/step - loss: 4.2 - val_loss: 4.9"."""

from __future__ import annotations

import re

from flatout.logs.metrics import named_metrics
from flatout.logs.observations import Kind, Observation

CUE = rb"/step\b"
_BAR = re.compile(
    r"(?P<n>\d+)/(?P<total>\d+)\s+(?:\[[=>.]*\]|[━╸╺─]+)\s+(?:- )?"
    r"(?:ETA: \S+|(?P<clock>\d+:\d\d(?::\d\d)?)|(?P<seconds>\d+)s)?\s*"
    r"(?:- )?(?P<step>[\d.]+)(?P<unit>ms|us|s|m)/step(?P<rest>.*)"
)
_SCALE = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0}


def parse(text: str) -> list[Observation]:
    """A finished epoch; states in between say when it will end, not how long it took."""
    found = _BAR.search(text)
    if found is None or found["seconds"] is None or found["n"] != found["total"]:
        return []
    total, step_s = float(found["total"]), float(found["step"]) * _SCALE[found["unit"]]
    seconds = float(found["seconds"]) or step_s * total
    metrics = named_metrics(found["rest"])
    for name in ("loss", "acc1"):
        if name in metrics:
            metrics[f"train_{name}"] = metrics.pop(name)
    observed = [Observation(Kind.EPOCH, {"seconds": seconds, "steps": total}, {"of": "Keras"})]
    return [*observed, Observation(Kind.METRICS, metrics)] if metrics else observed
