"""Let float32 matrix products use TF32."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec

# Compute capability with TF32 units (CUDA C++ Programming Guide, "Compute Capabilities").
_TF32_CORES = 8.0


def _propose(case: Context) -> Proposal | None:
    process = case.view.process
    if not case.view.uses_gpu or process.tf32 is not False or (process.capability or 0.0) < _TF32_CORES:
        return None
    if process.param_dtype != "float32" or process.autocast is not None:
        return None
    compute_s = case.cause.share * case.model.now.busy_s
    return Proposal(
        title="let float32 matrix products use TF32",
        change=Change(busy_removed_s=0.2 * compute_s),
        least=Change(),
        most=Change(busy_removed_s=0.6 * compute_s),
        how="torch.set_float32_matmul_precision('high') before the training",
        settings={"tf32": True},
        basis="share of computation only; how much of it is matrix products was not measured",
        memory_bytes=0,
    )


ENTRY = RemedySpec("tf32", ("compute_bound",), NUMERICS, "low", _propose)
