"""The lines that call a function of torch, from hand-made stacks."""

from __future__ import annotations

from typing import Any

import numpy as np

from flatout.measure.calling_lines import calling_lines
from flatout.measure.samples import Samples

TORCH = "/usr/lib/python3.12/site-packages/torch/nn/modules"
CONV = [f"{TORCH}/conv.py", 543, "_conv_forward", "return F.conv2d(", False]
CALL = [f"{TORCH}/module.py", 1751, "_call_impl", "return forward_call(*args, **kwargs)", False]


class Stacks:
    """Names that hold these stacks, by their place."""

    def __init__(self, stacks: list[list[list[Any]]]) -> None:
        self.stacks = stacks

    def get(self, id: int, type: str) -> dict[str, Any]:
        return {"frames": self.stacks[id]}


def lines(*stacks: list[list[Any]]) -> dict[str, list[str]]:
    ids = np.arange(len(stacks))
    # Each stack was sampled once more than the one before it.
    samples = Samples(ids, ids + 1.0, ids, ids, Stacks(list(stacks)))  # type: ignore[arg-type]
    return {name: [f"{line.file}:{line.line}" for line in found] for name, found in calling_lines(samples).items()}


def own(line: int, source: str) -> list[Any]:
    return ["train.py", line, "forward", source, True]


def test_a_module_of_torch_is_named_by_the_users_line_and_its_own_function() -> None:
    found = lines([CONV, CALL, own(12, "x = self.stem(x)")], [CONV, CALL, own(13, "x = self.body(x)")])
    assert found["conv2d"] == ["train.py:13", "train.py:12"]
    assert "stem" not in found


def test_a_function_that_the_user_calls_is_found_on_the_line_itself() -> None:
    assert lines([own(20, "scores = torch.bmm(q, k.transpose(1, 2))")])["bmm"] == ["train.py:20"]
    assert lines([own(21, "scores = q @ k.mT")])["matmul"] == ["train.py:21"]


def test_a_decorator_is_no_product() -> None:
    assert "matmul" not in lines([own(30, "@torch.no_grad()")])


def test_two_lines_are_enough() -> None:
    found = lines(*([CONV, CALL, own(line, "x = self.block(x)")] for line in range(5)))
    assert found["conv2d"] == ["train.py:4", "train.py:3"]
