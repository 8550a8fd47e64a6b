"""Embedding tables of Adam are updated by the rows that a batch takes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.probe.test_injections import trained

SCRIPT = """
import copy, json, sys
import torch

ROWS, KINDS = 70_000, %r

def train(kind, sparse):
    torch.manual_seed(0)
    table = torch.nn.Embedding(ROWS, 16, sparse=sparse)
    head = torch.nn.Linear(16, 1)
    kinds = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD}
    options = {"decayed": {"weight_decay": 0.1}, "adamw": {"weight_decay": 0.1}, "amsgrad": {"amsgrad": True}}
    if sparse:
        optimizers = [torch.optim.SparseAdam(table.parameters(), 0.01), torch.optim.Adam(head.parameters(), 0.01)]
    else:
        parameters = [*table.parameters(), *head.parameters()]
        optimizers = [kinds.get(kind, torch.optim.Adam)(parameters, 0.01, **options.get(kind, {}))]
    draw = torch.Generator().manual_seed(1)
    rate = torch.optim.lr_scheduler.StepLR(optimizers[0], 2) if kind == "schedule" else None
    layouts = set()

    def passes():
        rows = torch.randint(0, ROWS, (64, 3), generator=draw) if kind != "all" else torch.arange(ROWS)[:, None]
        if kind in ("decayed", "adamw"):
            rows = torch.arange(ROWS)[:, None]
        loss = head(table(rows).mean(1)).square().mean()
        if kind == "tied":
            loss = loss + table.weight[:4].square().sum()
        loss.backward()
        layouts.add(str(table.weight.grad.layout))
        if kind.startswith("clip"):
            norm = getattr(torch.nn.utils, kind)((one for one in [*table.parameters(), *head.parameters()]), 1e-3)
            norms.append(None if norm is None else float(norm))
        return loss

    norms = []
    for step in range(5):
        if kind == "closure":
            optimizers[0].step(passes)
            for optimizer in optimizers[1:]:
                optimizer.step()
        else:
            passes()
            for optimizer in optimizers:
                optimizer.step()
        if rate is not None:
            rate.step()
        for optimizer in optimizers:
            optimizer.zero_grad(set_to_none=kind != "zeros")
        if kind == "copied" and step == 2 and not sparse:
            table, head, optimizers = copy.deepcopy((table, head, optimizers))
        if kind == "other optimizer" and step == 2 and not sparse:
            optimizers[0] = torch.optim.RMSprop([*table.parameters(), *head.parameters()], 0.01)
        if kind == "resumed" and step == 2 and not sparse:
            saved = optimizers[0].state_dict()
            optimizers[0] = torch.optim.Adam([*table.parameters(), *head.parameters()], 0.01)
            optimizers[0].load_state_dict(saved)
    sums = [float(one.double().abs().sum()) for one in (table.weight, head.weight)]
    state = sorted(optimizers[0].state[table.weight]) if not sparse else []
    return {"sums": sums, "layouts": sorted(layouts), "norms": norms, "state": state}

print(json.dumps({kind: [train(kind, False), train(kind, True) if kind in %r else None] for kind in KINDS}))
"""
DENSE = ("all", "decayed", "adamw", "tied", "sgd", "amsgrad")  # all rows move, or the tables stay as they are
SPARSE = (
    "plain",
    "copied",
    "clip_grad_norm_",
    "clip_grad_value_",
    "zeros",
    "closure",
    "resumed",
)  # as SparseAdam does it
OTHERS = {"sgd": "tables are trained by other than Adam", "amsgrad": "the optimizer has amsgrad=True"}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tables") / "train.py"
    # torch itself does not clip sparse gradients.
    path.write_text(SCRIPT % ((*DENSE, *SPARSE), tuple(kind for kind in SPARSE if not kind.startswith("clip"))))
    return path


@pytest.fixture(scope="module")
def before(script: Path) -> dict[str, Any]:
    return trained(script)[0]


@pytest.fixture(scope="module")
def after(script: Path) -> dict[str, Any]:
    return trained(script, sparse_adam=True)[0]


@pytest.mark.parametrize("kind", DENSE)
def test_where_all_rows_are_taken_the_weights_become_the_same(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert after[kind][0]["sums"] == pytest.approx(before[kind][0]["sums"], rel=1e-6)
    assert after[kind][0]["state"] == before[kind][0]["state"]


@pytest.mark.parametrize("kind", SPARSE)
def test_other_rows_stay_as_they_are_as_with_sparse_adam(
    kind: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    [found, _], [dense, sparse] = after[kind], before[kind]
    assert found["layouts"] == ["torch.sparse_coo"]
    if sparse is not None:
        assert found["sums"] == pytest.approx(sparse["sums"], rel=1e-5)
    if kind == "clip_grad_norm_":  # the first step's weights are the same
        assert found["norms"][0] == pytest.approx(dense["norms"][0], rel=1e-5)
    assert found["state"] == dense["state"] == ["exp_avg", "exp_avg_sq", "step"]


@pytest.mark.slow
def test_another_optimizer_gets_dense_gradients_again(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT % (("other optimizer",), ()))
    seen, said = trained(path, sparse_adam=True)
    assert seen["other optimizer"][0]["layouts"] == ["torch.sparse_coo", "torch.strided"]
    assert "tables are trained by other than Adam" in said


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "why"), OTHERS.items())
def test_other_optimizers_keep_their_tables(tmp_path: Path, kind: str, why: str) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT % ((kind,), ()))
    seen, said = trained(path, sparse_adam=True)
    assert seen[kind][0]["layouts"] == ["torch.strided"]
    assert f"sparse_adam could not be set: {why}" in said
