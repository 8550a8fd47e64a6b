"""Hand over fewer bytes: the type that the files had."""

from __future__ import annotations

from flatout.predict.pipeline import Change
from flatout.remedies.proposal import NUMERICS, Case, Entry, Proposal


def _propose(case: Case) -> Proposal | None:
    loading = case.view.loading
    if loading is None or loading.num_workers == 0:
        return None
    # float32 to uint8 is a quarter; from other types less is won.
    return Proposal(
        title="hand over small types (uint8), convert on the device",
        change=Change(handover_factor=0.25),
        least=Change(),
        most=Change(handover_factor=0.1, smoothing=0.5),
        how="return torch.from_numpy(image_uint8) from the Dataset; images.to(device).float().div_(255) in the loop",
        basis="measured time of taking over batches; assumes that they are float32 and were 8 bits",
        memory_bytes=0,
    )


ENTRY = Entry("smaller_samples", ("fat_samples",), NUMERICS, "low", _propose)
