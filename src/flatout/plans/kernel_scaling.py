"""The time of kernels on another GPU, from their time on this one: by the figure of the part that bounds them.

After the roofline model (Williams, Waterman and Patterson, "Roofline", Communications of the ACM 52(4), 2009): kernels
take the same multiple of ``max(FLOPs / peak, bytes / bandwidth)`` on both parts.
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

    def peak(self, work: KernelWork, part: GpuPart) -> float:
        """Operations a second of such products.

        Raises:
            UsageError: the part has no tensor cores for them.
        """
        dtype = work.dtype or self.usual
        if dtype.startswith("float8"):
            return _peak(part, "fp8", dtype)
        if dtype == "bfloat16":
            _peak(part, "tf32", dtype)  # both came with Ampere
            return part.peaks["fp16"]
        if dtype == "float16":
            return part.peaks["fp16"]
        tf32 = self.tf32 or work.kind == "convolution"
        return part.peaks.get("tf32", part.peaks["fp32"]) if tf32 else part.peaks["fp32"]


def _peak(part: GpuPart, precision: str, dtype: str) -> float:
    if precision not in part.peaks:
        raise UsageError(f"--gpu: {part.name} computes no products in {dtype}, as this run does: nothing to scale by")
    return part.peaks[precision]


def time_factor(work: KernelWork, now: GpuPart, then: GpuPart, precision: Precision) -> float:
    """Time of these kernels there over their time here."""
    if work.kind == "bus":
        return 1.0
    if work.kind == "memory":
        return now.bandwidth / then.bandwidth
    peaks = precision.peak(work, now), precision.peak(work, then)
    if work.flops is None or work.bytes is None:
        return peaks[0] / peaks[1]
    here_s, there_s = (
        max(work.flops / peak, work.bytes / part.bandwidth) for peak, part in zip(peaks, (now, then), strict=True)
    )
    return there_s / here_s
