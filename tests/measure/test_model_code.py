"""Code of the model's outside of module calls, by stack samples."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from flatout.measure.model_code import divide_model_code
from flatout.measure.samples import Samples
from flatout.measure.timeline import Pieces


class Names:
    """Stacks by their ids."""

    def __init__(self, stacks: dict[int, list[tuple[str, bool]]]) -> None:
        self.stacks = stacks

    def get(self, id: int, kind: str) -> dict[str, Any]:
        frames = [["torch/functional.py" if not own else "model.py", 1, name, "", own] for name, own in self.stacks[id]]
        return {"frames": frames}


STACKS = {
    1: [("mm", False), ("computer", True), ("train", True)],  # the model's
    2: [("shuffle", True), ("train", True)],
    3: [("backward", False), ("train", True)],
    4: [("mul", False), ("train", True)],
}


@pytest.mark.parametrize(
    ("functions", "part"),
    [
        ([["model.py", "computer"], ["model.py", "train"]], 0.75),  # the loop itself is on the stack of backward passes
        ([["other.py", "computer"]], 0.0),
        (None, 0.0),
    ],
)
def test_time_in_functions_that_compute_with_gradients_is_the_models(functions: Any, part: float) -> None:
    # A gap of 400 ns and a backward pass of 100 ns; the next gap lies between others, and keeps its time.
    ends = np.array([400, 500, 600])
    pieces = Pieces(np.array([0, 400, 500]), ends, np.array([-1, 0, -1]))
    stack = np.array([1, 1, 1, 2, 3, 4])
    time_ns = np.array([10, 110, 210, 310, 450, 550])
    samples = Samples(time_ns, np.ones(6), stack, np.zeros(6, np.int64), Names(STACKS))  # type: ignore[arg-type]
    candidates, computing = np.array([True, False, True]), np.array([False, True, False])
    info = {} if functions is None else {"model_functions": functions}
    found = divide_model_code(pieces, candidates, computing, np.array([0, 1, 2]), samples, pieces.at(time_ns), info)
    assert found.pieces.length[found.found].sum() == part * 400
    assert found.pieces.length.sum() == 600
