"""Modules that do not train, as the steps after the window show them, and whether samples come again as they were."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.measure.last_steps import same_samples
from flatout.record import ProcessRecord


@dataclass(frozen=True)
class FrozenModule:
    """One module without a gradient and with constant weights.

    Attributes:
        name: class of the outermost module, and path in it.
        seconds: in a step.
        calls: in a step.
        sample_bytes: of what it gives for one sample.
    """

    name: str
    seconds: float
    calls: float
    sample_bytes: float


@dataclass(frozen=True)
class FrozenModules:
    """All of them.

    Attributes:
        seconds: in a step.
        modules: those with most of it, the first with the most.
        same_samples: the data set gave the same when it was asked twice; False: at least one sample differed; None: it
            was not asked.
    """

    seconds: float
    modules: tuple[FrozenModule, ...]
    same_samples: bool | None = None

    @property
    def sample_bytes(self) -> float:
        """Of what the last layers give for a sample: of a chain of modules, the least."""
        return min(one.sample_bytes for one in self.modules)

    @property
    def alone(self) -> FrozenModule | None:
        """The module that takes nearly all of the time; None: several share it."""
        first = self.modules[0]
        return first if first.seconds >= _NEARLY_ALL * self.seconds else None


_NEARLY_ALL = 0.9


def read_frozen_modules(process: ProcessRecord) -> FrozenModules | None:
    """What the training process timed; None: it has no such modules, or nobody looked."""
    seen = process.info.get("frozen_modules") or {}
    if not seen.get("modules") or not seen.get("ns"):
        return None
    steps = seen["steps"]
    return FrozenModules(
        seconds=seen["ns"] / steps / 1e9,
        modules=tuple(
            FrozenModule(name, ns / steps / 1e9, calls / steps, given / max(samples, 1))
            for name, ns, calls, given, samples in seen["modules"]
        ),
        same_samples=same_samples(process),
    )
