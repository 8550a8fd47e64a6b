"""Embedding tables of plain SGD get sparse gradients, and the weights become the same."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from flatout.runner.command import injecting_environment

TRAINING = """
    import json, sys
    import torch

    def train(kind):
        torch.manual_seed(0)
        rows = 100 if kind == "small" else 70_000
        table, bag = torch.nn.Embedding(rows, 16, padding_idx=0), torch.nn.EmbeddingBag(rows, 16, mode="mean")
        head = torch.nn.Linear(32, 1)
        model = torch.nn.ModuleList([table, bag, head])
        if kind == "hooked":
            table.weight.register_hook(lambda gradient: None)
        if kind == "adam":
            optimizer = torch.optim.Adam(model.parameters(), 0.1)
        else:
            optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9 if kind == "momentum" else 0.0)
        draw = torch.Generator().manual_seed(1)
        layouts = set()
        for step in range(4):
            if kind == "decayed" and step == 2:
                optimizer.param_groups[0]["weight_decay"] = 0.1
            rows_taken = torch.randint(0, rows, (8, 3), generator=draw)
            value = head(torch.cat([table(rows_taken).mean(1), bag(rows_taken)], 1)).square().mean()
            value.backward()
            layouts.add(str(table.weight.grad.layout))
            if kind.startswith("clip"):
                getattr(torch.nn.utils, kind)(model.parameters(), 0.01)
            optimizer.step()
            optimizer.zero_grad()
        return [float(part.double().abs().sum()) for part in model.parameters()], sorted(layouts)

    print(json.dumps([train(kind) for kind in sys.argv[1:]]))
"""
OTHERS = "sparse_embeddings could not be set: tables are trained by other than SGD without momentum and weight decay"


KINDS = [
    ("plain", ["torch.sparse_coo"], "set sparse_embeddings=true"),
    ("small", ["torch.strided"], "sparse_embeddings had no effect"),
    ("adam", ["torch.strided"], OTHERS),
    ("momentum", ["torch.strided"], OTHERS),
    ("clip_grad_norm_", ["torch.sparse_coo"], "set sparse_embeddings=true"),
    ("clip_grad_value_", ["torch.sparse_coo"], "set sparse_embeddings=true"),
    ("hooked", ["torch.strided"], "hooks of the script's get the gradients of tables"),
    ("decayed", ["torch.sparse_coo", "torch.strided"], "the optimizer has got momentum or weight decay"),
]


def trained(folder: Path, settings: dict[str, bool], *kinds: str) -> tuple[list[tuple[list[float], list[str]]], str]:
    """Sums of weights and layouts of gradients of each kind, and what was said on standard error."""
    script = folder / "train.py"
    script.write_text(textwrap.dedent(TRAINING))
    environment = injecting_environment() | {"FLATOUT_SETTINGS": json.dumps(settings)}
    done = subprocess.run([sys.executable, str(script), *kinds], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout), done.stderr


@pytest.fixture(scope="module")
def dense(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[float]]:
    kinds = [kind for kind, _, _ in KINDS]
    results, _ = trained(tmp_path_factory.mktemp("dense"), {}, *kinds)
    assert all(layouts == ["torch.strided"] for _, layouts in results)
    return {kind: sums for kind, (sums, _) in zip(kinds, results, strict=True)}


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "layouts", "said"), KINDS)
def test_the_weights_become_the_same(
    tmp_path: Path, dense: dict[str, list[float]], kind: str, layouts: list[str], said: str
) -> None:
    [[sums, kinds]], err = trained(tmp_path, {"sparse_embeddings": True}, kind)
    assert sums == pytest.approx(dense[kind], rel=1e-7)
    assert kinds == layouts and said in err and err.count("sparse_embeddings") == 1
