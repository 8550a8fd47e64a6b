"""Layers that another form computes in less time, as steps after the window show them: both forms were timed there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from flatout.record import ProcessRecord
from flatout.results import Line

_MANY_ROUNDS = 4


@dataclass(frozen=True)
class BothForms:
    """Layers of one kind.

    Attributes:
        uses: in a step.
        shape: of the input.
        seconds: of both passes in a use, the fastest round; None: they were not timed.
        part: time of the other form over that, the fastest rounds of both.
        low: the least of the rounds.
        high: the most of them.
        lines: that call them, without seconds.
        skipped: why they were not timed.
    """

    uses: int
    shape: tuple[int, ...]
    seconds: float | None = None
    part: float = 1.0
    low: float = 1.0
    high: float = 1.0
    lines: tuple[Line, ...] = ()
    skipped: str = ""

    def saved_s(self, part: float) -> float:
        """Seconds of a step, where the other form takes this part of the time."""
        return 0.0 if self.seconds is None else self.uses * self.seconds * (1.0 - part)


_Layers = TypeVar("_Layers", bound=BothForms)


@dataclass(frozen=True)
class UnmergedLayers(BothForms):
    """Layers that multiply the same input one after the other; one layer is the other form.

    Attributes:
        operator: ``mm``, ``addmm`` or ``convolution``.
        layers: of an input.
    """

    operator: str = "addmm"
    layers: int = 0

    @property
    def kind(self) -> str:
        """What such layers are called."""
        return "convolutions" if self.operator == "convolution" else "linear layers"


@dataclass(frozen=True)
class SpanningKernels(BothForms):
    """Convolutions of one channel whose kernel spans a dimension; the other form is one in the other dimension.

    Attributes:
        kernel: outputs x 1 x height x width.
    """

    kernel: tuple[int, ...] = ()


@dataclass(frozen=True)
class UnfusedFunctions(BothForms):
    """Calls of a function of the user's, of whom torch has one that gives the same; that one is the other form.

    Attributes:
        name: of torch's, in ``torch.nn.functional``.
        code: a call of it that gives the same.
    """

    name: str = ""
    code: str = ""


@dataclass(frozen=True)
class CoordinateProducts(BothForms):
    """All products of a sparse matrix in coordinates in a step; those by its rows are the other form.

    Attributes:
        products: of the matrix in a step.
        matrix: rows x columns.
        values: of the matrix that are not zero.
        kept: it is the same matrix in the next step.
    """

    products: int = 1
    matrix: tuple[int, ...] = ()
    values: int = 0
    kept: bool = True


@dataclass(frozen=True)
class GatheredWeights(BothForms):
    """Rows that are each multiplied by a copy of one of few matrices; one product for each matrix is the other form.

    Attributes:
        matrix: inputs x outputs.
        matrices: different ones.
    """

    matrix: tuple[int, ...] = ()
    matrices: int = 1


@dataclass(frozen=True)
class StepwiseProducts(BothForms):
    """All products of a step with one weight that do not depend on each other; one product is the other form.

    Attributes:
        products: of them.
        weight: inputs x outputs.
    """

    products: int = 1
    weight: tuple[int, ...] = ()


@dataclass(frozen=True)
class UnfusedAttention(BothForms):
    """Attention by two products with a softmax between them; torch's operator is the other form.

    Attributes:
        keys: that each query is compared with.
        masked: some are left out.
        dropout: some weights are.
    """

    keys: int = 0
    masked: bool = False
    dropout: bool = False


@dataclass(frozen=True)
class BroadcastPairs(BothForms):
    """What is made for all pairs by broadcasting, and summed up; a product of matrices is the other form.

    Attributes:
        kind: products, distances or cosines.
        left: sizes of one operand, 1 where it is broadcast.
        right: of the other one.
    """

    kind: str = "products"
    left: tuple[int, ...] = ()
    right: tuple[int, ...] = ()


@dataclass(frozen=True)
class ModelLayouts(BothForms):
    """A model with convolutions whose pixels are laid out channels first; channels last is the other form.

    Attributes:
        name: its class.
        layout: the other one's name in torch.
    """

    name: str = ""
    layout: str = "channels_last"


def parts(first_ns: Sequence[int], second_ns: Sequence[int]) -> tuple[float, float, float]:
    """The time of a second way over that of the first: of the fastest rounds, and the least and the most of a round.

    Of four rounds and more, the two that are farthest apart do not count: other programs may have had the cores.
    """
    each = sorted(min(second / first, 1.0) for first, second in zip(first_ns, second_ns, strict=False))
    if len(each) >= _MANY_ROUNDS:
        each = each[1:-1]
    part = min(min(second_ns) / min(first_ns), 1.0)
    return part, min(*each, part), max(*each, part)


def read_unmerged_layers(process: ProcessRecord) -> tuple[UnmergedLayers, ...]:
    """Those of the training process, the ones that save most first; empty: there are none, or nobody looked."""
    found = process.info.get("unmerged_layers") or ()
    return _most_first(
        UnmergedLayers(**_both(seen, seen["groups"], "apart_ns"), operator=seen["operator"], layers=seen["layers"])
        for seen in found
    )


def read_spanning_kernels(process: ProcessRecord) -> tuple[SpanningKernels, ...]:
    """The same of convolutions."""
    found = process.info.get("spanning_kernels") or ()
    return _most_first(
        SpanningKernels(**_both(seen, seen["calls"], "plain_ns"), kernel=tuple(seen["kernel"])) for seen in found
    )


def read_unfused_functions(process: ProcessRecord) -> tuple[UnfusedFunctions, ...]:
    """The same of functions."""
    found = process.info.get("unfused_functions") or ()
    return _most_first(
        UnfusedFunctions(**_both(seen, seen["calls"], "plain_ns"), name=seen["name"], code=seen["code"])
        for seen in found
    )


def read_coordinate_products(process: ProcessRecord) -> tuple[CoordinateProducts, ...]:
    """The same of products."""
    found = process.info.get("coordinate_products") or ()
    return _most_first(
        CoordinateProducts(
            **_both(seen, 1, "plain_ns"),
            products=seen["calls"],
            matrix=tuple(seen["matrix"]),
            values=seen["values"],
            kept=seen["kept"],
        )
        for seen in found
    )


def read_gathered_weights(process: ProcessRecord) -> tuple[GatheredWeights, ...]:
    """The same of rows with matrices of their own."""
    found = process.info.get("gathered_weights") or ()
    return _most_first(
        GatheredWeights(
            **_both(seen, seen["calls"], "plain_ns"), matrix=tuple(seen["matrix"]), matrices=seen["matrices"]
        )
        for seen in found
    )


def read_stepwise_products(process: ProcessRecord) -> tuple[StepwiseProducts, ...]:
    """The same of products with one weight."""
    found = process.info.get("stepwise_products") or ()
    return _most_first(
        StepwiseProducts(**_both(seen, 1, "plain_ns"), products=seen["calls"], weight=tuple(seen["weight"]))
        for seen in found
    )


def read_unfused_attention(process: ProcessRecord) -> tuple[UnfusedAttention, ...]:
    """The same of attention."""
    found = process.info.get("unfused_attention") or ()
    return _most_first(
        UnfusedAttention(
            **_both(seen, seen["calls"], "plain_ns"),
            keys=seen["keys"],
            masked=seen["masked"],
            dropout=seen["dropout"],
        )
        for seen in found
    )


def read_broadcast_pairs(process: ProcessRecord) -> tuple[BroadcastPairs, ...]:
    """The same of pairs."""
    found = process.info.get("broadcast_pairs") or ()
    return _most_first(
        BroadcastPairs(
            **_both(seen, seen["calls"], "plain_ns"),
            kind=seen["kind"],
            left=tuple(seen["left"]),
            right=tuple(seen["right"]),
        )
        for seen in found
    )


def read_model_layouts(process: ProcessRecord) -> tuple[ModelLayouts, ...]:
    """The same of models with convolutions."""
    found = process.info.get("model_layouts") or ()
    return _most_first(
        ModelLayouts(**_both(seen, seen["calls"], "plain_ns"), name=seen["name"], layout=seen["layout"])
        for seen in found
    )


def _most_first(found: Iterable[_Layers]) -> tuple[_Layers, ...]:
    return tuple(sorted(found, key=lambda one: -one.saved_s(one.part)))


def _both(seen: Mapping[str, Any], uses: int, first: str) -> dict[str, Any]:
    first_ns, second_ns = seen.get(first) or [], seen.get("joined_ns") or []
    both: dict[str, Any] = {
        "uses": uses,
        "shape": tuple(seen["input"]),
        "lines": tuple(Line(file, line, function, "", 0.0) for file, line, function, _ in seen["lines"]),
    }
    if not first_ns or not second_ns:
        return {**both, "skipped": seen.get("skipped") or "they were not timed"}
    part, low, high = parts(first_ns, second_ns)
    return {**both, "seconds": min(first_ns) / 1e9, "part": part, "low": low, "high": high}
