"""Let cuDNN try its convolution algorithms once for each shape."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Context, Proposal, RemedySpec


def _propose(case: Context) -> Proposal | None:
    process = case.view.process
    if not case.view.uses_gpu or process.convolutions is None or process.cudnn_benchmark is not False:
        return None
    compute_s = case.cause.share * case.model.now.busy_s
    return Proposal(
        title="let cuDNN choose its algorithms by trying them",
        change=Change(busy_removed_s=0.05 * compute_s),
        least=Change(),
        most=Change(busy_removed_s=0.3 * compute_s),
        how="torch.backends.cudnn.benchmark = True  # shapes have to stay the same",
        settings={"cudnn_benchmark": True},
        basis="share of computation only; the algorithms that are used now are not known",
        memory_bytes=0,
    )


ENTRY = RemedySpec("cudnn_benchmark", ("compute_bound",), NUMERICS, "low", _propose)
