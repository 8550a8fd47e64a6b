"""The operators of a step: how many, how long, and how much of the step passes around them."""

from __future__ import annotations

from dataclasses import dataclass

from flatout.measure.call_loops import CallLoop
from flatout.measure.costly_operators import CostlyOperator
from flatout.measure.dense_gradients import DenseGradients
from flatout.measure.full_sorts import FullSorts
from flatout.measure.fusion import NOT_FUSIBLE, Fusible
from flatout.measure.kernel_work import KernelWork
from flatout.measure.needless_logits import NeedlessLogits
from flatout.measure.roofline import NOT_MEASURED, Ceilings, Roofline
from flatout.measure.slice_gradients import SliceGradients
from flatout.measure.slice_writes import SliceWrites
from flatout.measure.slow_kernels import NO_SLOW_KERNELS, SlowKernels
from flatout.measure.zero_operands import ZeroOperands

_FUSED_PART = 0.8  # of the overhead of a layer's operators, assumed: one operator is left, and its gradient

_SORTED_IN_VAIN = 0.8  # of a sort, where few places are used: finding these takes the rest


@dataclass(frozen=True)
class Operators:
    """The operators of one training step. Times are seconds a step, without what tracing adds.

    Times in kernels are those on a core; ``computed_s`` and ``overhead_s`` contain the waits for one.
    """

    count: float  # that reach a kernel
    median_s: float  # of one operator
    reference_s: float  # an operator called from Python that computes nothing
    computed_s: float  # forward, loss, backward and optimizer
    overhead_s: float  # the part of it in which no operator's kernel runs
    kernels_s: float  # in kernels
    pointwise_s: float  # in kernels other than products and convolutions
    wide_s: float  # in kernels on 64-bit floats
    saved_by_float32_s: float  # of those, that 32-bit floats would save
    conversions: float | None  # copies of activations into another memory layout; None: not recorded
    conversions_s: float  # in their kernels
    float64_factor: float  # time of a product in float64 over that in float32, on the CPU
    on_device: bool  # the kernels ran on a GPU
    in_graph_calls_s: float = 0.0  # the part of the overhead in calls of compiled graphs, forward and backward
    unfused: float = 0.0  # share of the operators that are of LSTM layers in 64 bits, which the CPU fuses in 32
    recurrent: float = 0.0  # share of the operators that one of torch's recurrent layers calls by itself
    fusible: Fusible = NOT_FUSIBLE  # what a compiler can save in the model's pointwise operators
    blocked_s: float = 0.0  # of computed_s, in which the training thread slept or waited; on a GPU not measured
    costliest: tuple[CostlyOperator, ...] = ()  # the most time first
    roofline: Roofline | str = NOT_MEASURED  # text: why it is not known
    slices: SliceGradients | None = None  # gradients of slices that were taken one after the other
    writes: SliceWrites | None = None  # into parts of tensors, one after the other
    sorts: FullSorts | None = None  # of which few places are used
    slow: SlowKernels = NO_SLOW_KERNELS  # for which there is a quicker way
    logits: NeedlessLogits | None = None  # of the loss over most classes
    zeros: ZeroOperands | None = None  # products with matrices that are almost all zeros
    dense: DenseGradients | None = None  # of embedding tables of which a step takes few rows
    loop: CallLoop | None = None  # around the layer that is called again and again
    work: tuple[KernelWork, ...] = ()  # of all kernels
    ceilings: Ceilings | str = NOT_MEASURED  # rates of the device; text: why they are not known
    launching_s: float = 0.0  # the least time in which the host calls the operators of a step
    other_code_s: float = 0.0  # of computed_s, in which no operator runs for milliseconds
    factorised_s: float = 0.0  # in kernels that factorise or solve with matrices of 64-bit floats

    @property
    def removable_overhead_s(self) -> float:
        """The overhead on a core, without that of recurrent layers: fewer calls or a compiler do not shorten those.

        A thread that sleeps, waits for a lock or a process, or runs other code, calls no operator.
        """
        overhead_s = max(self.overhead_s - self.other_code_s, 0.0)
        return min(overhead_s * (1.0 - self.recurrent), max(self.computed_s - self.blocked_s, 0.0))

    @property
    def saved_overhead_s(self) -> float:
        """The overhead that goes where 32-bit floats let the CPU compute a recurrent layer in one operator."""
        return _FUSED_PART * self.unfused * self.overhead_s

    @property
    def of_slices_s(self) -> float:
        """What gradients of slices take: their kernels, and the overhead of the operators that they consist of."""
        if self.slices is None:
            return 0.0
        return float(self.in_kernels_s(self.slices.seconds) + self.slices.calls * self.removable_overhead_s)

    @property
    def of_writes_s(self) -> float:
        """What writes into parts of tensors take, as for slices."""
        if self.writes is None:
            return 0.0
        return float(self.in_kernels_s(self.writes.seconds) + self.writes.calls * self.removable_overhead_s)

    @property
    def of_sorts_s(self) -> float:
        """What sorts take beyond finding the places that are used."""
        return float(self.in_kernels_s(_SORTED_IN_VAIN * self.sorts.seconds)) if self.sorts is not None else 0.0

    @property
    def of_tables_s(self) -> float:
        """What gradients of whole tables take: freeing them passes around kernels, which is divided as these are."""
        part = self.dense.seconds / self.kernels_s if self.dense is not None and self.kernels_s else 0.0
        return float(self.in_kernels_s(self.dense.seconds if self.dense else 0.0) + part * self.overhead_s)

    def in_kernels_s(self, part_s: float) -> float:
        """Wall time of a part of the time in kernels: what kernels wait for a core shrinks with their work."""
        return max(self.computed_s - self.overhead_s, 0.0) * part_s / self.kernels_s if self.kernels_s else 0.0
