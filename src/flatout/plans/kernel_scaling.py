"""The time of kernels on another GPU, from their time on this one: by the figure of the part that bounds them.

After the roofline model (Williams, Waterman and Patterson, "Roofline", Communications of the ACM 52(4), 2009): kernels
take the same multiple of ``max(FLOPs / rate, bytes / bandwidth)`` on both parts, where the rate is that share of the
peak that large products reach.
"""

from __future__ import annotations

from dataclasses import dataclass

from flatout.errors import UsageError
from flatout.measure.kernel_work import KernelWork
from flatout.plans.gpu_parts import GpuPart


@dataclass(frozen=True)
class Precision:
    """In which precision products are computed.

    Attributes:
        tf32: float32 products of matrices may use TF32, where the part has it. Convolutions use it by default.
        usual: type of products whose type the trace does not tell.
    """

    tf32: bool = False
    usual: str = "float32"

    def rate(self, work: KernelWork, part: GpuPart) -> float:
        """Operations a second that large ones of such products reach.

        Raises:
            UsageError: the part has no tensor cores for them.
        """
        dtype = work.dtype or self.usual
        if dtype.startswith("float8"):
            return _peak(part, "fp8", dtype)
        if dtype == "bfloat16":
            _peak(part, "tf32", dtype)  # both came with Ampere
            return part.reached("fp16")
        if dtype == "float16":
            return part.reached("fp16")
        tf32 = (self.tf32 or work.kind == "convolution") and "tf32" in part.peaks
        return part.reached("tf32" if tf32 else "fp32")


def _peak(part: GpuPart, precision: str, dtype: str) -> float:
    if precision not in part.peaks:
        raise UsageError(f"--gpu: {part.name} computes no products in {dtype}, as this run does: nothing to scale by")
    return part.reached(precision)


def time_factor(work: KernelWork, now: GpuPart, then: GpuPart, precision: Precision) -> float:
    """Time of these kernels there over their time here."""
    if work.kind == "bus":
        return 1.0
    if work.kind == "memory":
        return now.bandwidth / then.bandwidth
    rates = precision.rate(work, now), precision.rate(work, then)
    if work.flops is None or work.bytes is None:
        return rates[0] / rates[1]
    here_s, there_s = (
        max(work.flops / rate, work.bytes / part.bandwidth) for rate, part in zip(rates, (now, then), strict=True)
    )
    return there_s / here_s
