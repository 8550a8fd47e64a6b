"""The value that is tried after a run out of memory."""

from __future__ import annotations

from typing import Any

import pytest

from flatout.trials.backoff import smaller


@pytest.mark.parametrize(
    ("failed", "kept", "expected"),
    [
        ({"num_workers": 8}, {}, {"num_workers": 4}),
        (
            {"num_workers": 8, "persistent_workers": True},
            {"num_workers": 4},
            {"num_workers": 6, "persistent_workers": True},
        ),
        ({"num_workers": 5}, {"num_workers": 4}, None),
        ({"prefetch_factor": 8}, {}, {"prefetch_factor": 5}),  # torch's own default is 2
        ({"batch_size": 16, "lr_factor": 2.0}, {"batch_size": 8}, {"batch_size": 12, "lr_factor": 1.5}),
        ({"tf32": True}, {}, None),
        ({"file_cache_bytes": 1 << 30}, {}, None),
    ],
)
def test_the_next_value_lies_half_way_to_the_present_one(
    failed: dict[str, Any], kept: dict[str, Any], expected: dict[str, Any] | None
) -> None:
    assert smaller(failed, kept, None) == expected
