"""Which processes of a training begin with a given seed."""

import json
import os
import subprocess
import sys
from collections.abc import Mapping

import pytest

DRAW = """
import json, os, subprocess, sys
from flatout.probe import seeding
seeding.begin(lambda name, action: action(__import__(name, fromlist=["name"])) if name != "torch" else None)
import random, numpy
drawn = [random.random(), numpy.random.rand(), numpy.random.default_rng().random()]
if len(sys.argv) > 1:
    output = subprocess.run([sys.executable, "-c", sys.argv[1]], stdout=subprocess.PIPE, check=True).stdout
    drawn.append(json.loads(output))
print(json.dumps(drawn))
"""


def drawn(variables: Mapping[str, str], *words: str) -> list[float]:
    clean = {name: value for name, value in os.environ.items() if name not in ("RANK", "LOCAL_RANK", "FLATOUT_SEED")}
    ran = subprocess.run(
        [sys.executable, "-c", DRAW, *words], env={**clean, **variables}, stdout=subprocess.PIPE, check=True
    )
    found: list[float] = json.loads(ran.stdout)
    return found


def test_the_same_seed_draws_the_same_numbers() -> None:
    first, again, other = (drawn({"FLATOUT_SEED": seed}) for seed in ("5", "5", "6"))
    assert first == again
    assert not set(first) & set(other)
    assert not set(drawn({})) & set(drawn({})), "without a seed nothing is set"


def test_each_rank_draws_numbers_of_its_own() -> None:
    first, second = (drawn({"FLATOUT_SEED": "5", "RANK": rank}) for rank in ("0", "1"))
    assert not set(first) & set(second)
    assert first == drawn({"FLATOUT_SEED": "5", "LOCAL_RANK": "0"})
    assert drawn({"FLATOUT_SEED": "5/none", "RANK": "1"}) == second, "its launcher was seeded before"


@pytest.mark.parametrize("variables", [{}, {"RANK": "1"}])
def test_a_process_that_a_training_starts_draws_numbers_of_its_own(variables: Mapping[str, str]) -> None:
    *first, child = drawn({"FLATOUT_SEED": "5", **variables}, DRAW)
    *again, other = drawn({"FLATOUT_SEED": "5", **variables}, DRAW)
    assert first == again
    assert not {*first} & {*child} and not {*child} & {*other}  # type: ignore[misc]
