"""Checksums of arrays: one changed element shows, wherever it lies."""

import numpy as np
import torch

from flatout.probe.injections import array_sums
from flatout.probe.injections.array_sums import digest_of_arrays


def test_each_changed_element_and_swapped_rows_show() -> None:
    rng = np.random.default_rng(0)
    for shape, dtype in (((256, 4096), "f4"), ((3, 5), "i8"), ((1000, 7), "u1"), ((20_001,), "f8")):
        data = (rng.random(shape) * 100).astype(dtype)
        before = digest_of_arrays([data])
        assert before == digest_of_arrays([data.copy()]) == digest_of_arrays([object(), torch.from_numpy(data)])
        for place in rng.integers(0, data.size, 20):
            changed = data.copy()
            changed.reshape(-1)[place] += 1
            assert digest_of_arrays([changed]) != before, (shape, place)
        swapped = data.copy()
        swapped[[0, -1]] = swapped[[-1, 0]]
        assert digest_of_arrays([swapped]) != before or (swapped == data).all()


def test_other_things_and_views_are_looked_at_as_far_as_they_go() -> None:
    data = np.arange(100.0).reshape(10, 10)
    read_only = data.copy()
    read_only.flags.writeable = False
    found = digest_of_arrays(
        [data.T, data[::2], read_only, np.array(["a", None], dtype=object), np.zeros(0), "text", 3]
    )
    assert found is not None and found != digest_of_arrays([])
    dates, texts = np.array(["2026-11-28"] * 3, dtype="M8[D]"), np.array(["a", "bc"])
    records = np.zeros(3, dtype=[("a", "i4"), ("b", "f8")])
    assert len({digest_of_arrays([one]) for one in (dates, dates[:2], texts, texts[:1], records, np.array(3.0))}) == 6
    bfloat16 = torch.ones(5, dtype=torch.bfloat16)
    assert digest_of_arrays([bfloat16]) != digest_of_arrays([bfloat16 * 2])


def test_more_than_can_be_looked_at_has_no_digest(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(array_sums, "_MOST_BYTES", 1000)
    assert digest_of_arrays([np.zeros(100)]) is not None
    assert digest_of_arrays([np.zeros(100), np.zeros(100)]) is None
