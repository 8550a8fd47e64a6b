"""Decode less: at the size that the transforms need, or from smaller files."""

from __future__ import annotations

from flatout.predict.fetch_changes import DECODE_GROUPS, without_groups
from flatout.predict.pipeline import Change
from flatout.remedies.proposal import DATA, Context, Proposal, RemedySpec

# Of a decoded picture: what crops of 224 pixels are commonly taken from.
SHORT_SIDE = 256


def _propose(case: Context) -> Proposal | None:
    loading = case.view.loading
    if loading is None:
        return None
    return Proposal(
        title="decode at reduced size, or resize the files once",
        # A JPEG decoded at half its size costs about half: the entropy decoding stays, the rest falls to a quarter.
        change=without_groups(loading, DECODE_GROUPS, 0.5),
        least=Change(),
        most=without_groups(loading, DECODE_GROUPS, 0.9),
        how=f"image.draft('RGB', ({SHORT_SIDE}, {SHORT_SIDE})) before image.load(); or store resized copies",
        settings={"jpeg_short_side": SHORT_SIDE},
        recipe="images.decoder=pillow --set images.scaled_decode=true",
        basis="measured share of decoding; assumes that half of it can be saved, which depends on the files",
        memory_bytes=0,
    )


ENTRY = RemedySpec("faster_decode", ("cpu_decode",), DATA, "medium", _propose)
