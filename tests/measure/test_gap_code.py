"""Code in the gaps between the measured calls of a step, and the account that it belongs to."""

from __future__ import annotations

from pathlib import Path

import pytest

from flatout.measure.gap_code import (
    BACKWARD,
    FORWARD,
    LOGGING,
    LOSS,
    OPTIMIZER,
    OTHER,
    instead_of_loss,
    instead_of_other,
)
from flatout.measure.ledger import ledger_of
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SITE = "/venv/lib/python3.11/site-packages"


def user(source: str) -> list[object]:
    return ["/home/me/train.py", 7, "step", source, True]


def library(path: str, source: str = "") -> list[object]:
    return [f"{SITE}/{path}", 1, "function", source, False]


@pytest.mark.parametrize(
    ("frames", "account"),
    [
        ([user("loss = ((out - target) ** 2).mean()")], None),
        ([library("torch/nn/functional.py"), library("torch/nn/modules/loss.py"), user("loss = crit(out, y)")], None),
        ([library("transformers/loss/loss_utils.py"), user("loss = fixed_cross_entropy(out, y)")], None),
        ([user("penalty = sum(p.norm() for p in model.parameters())")], None),
        ([], None),
        (
            [library("lightning/pytorch/trainer/connectors/logger_connector/result.py"), user("self.log(name, value)")],
            LOGGING,
        ),
        ([user("self.log('loss', loss)")], LOGGING),
        ([library("torchmetrics/metric.py"), user("self.accuracy(out, y)")], LOGGING),
        ([library("torch/utils/tensorboard/writer.py"), user("writer.add_scalar('loss', loss)")], LOGGING),
        ([["/usr/lib/python3.11/copy.py", 9, "deepcopy", "", False], user("good = deepcopy(net)")], OTHER),
        ([library("torch/nn/modules/module.py"), user("model.zero_grad(set_to_none=True)")], OPTIMIZER),
        ([user("self.good = copy.deepcopy(self.net.state_dict())")], OTHER),
        ([library("sklearn/metrics/_ranking.py"), user("auc = roc_auc_score(y, p)")], OTHER),
        ([library("transformers/tokenization_utils_base.py"), user("text = tokenizer.batch_decode(out)")], OTHER),
    ],
)
def test_what_is_known_to_be_no_loss_is_charged_elsewhere(frames: list[list[object]], account: str | None) -> None:
    assert instead_of_loss(frames) == account


@pytest.mark.parametrize(
    ("frames", "account"),
    [
        ([library("torch/autograd/__init__.py"), user("slope = torch.autograd.grad(y, x, ones)[0]")], BACKWARD),
        ([user("total += 1"), library("torch/autograd/__init__.py")], None),
        ([user("p.data.add_(p.grad, alpha=-lr)")], OPTIMIZER),
        ([user("weight -= lr * weight.grad")], OPTIMIZER),
        ([user("buffer.mul_(momentum).add_(p.grad)"), user("sgd.step()")], OPTIMIZER),
        ([user("norm += p.grad.norm().item() ** 2")], None),
        ([user("p.data.add_(noise)"), user("p.sub_(p.grad)")], None),
        ([user("board.draw(loss)")], None),
        ([], None),
        ([library("torch/optim/optimizer.py"), user("optimizer.step()")], OPTIMIZER),
        ([user("self.optim_d.step()")], OPTIMIZER),
        ([user("env.step(action)")], None),
    ],
)
def test_gradients_and_updates_outside_of_measured_calls(frames: list[list[object]], account: str | None) -> None:
    assert instead_of_other(frames) == account


def test_the_samples_of_a_loss_share_its_time_out_among_the_accounts(tmp_path: Path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    main.pause(1.0)
    loader = main.loader()
    main.iterate(loader)
    for _ in range(5):
        begin_s = main.now_s
        main.step(loader, wait_s=0.1, forward_s=0.1, loss_s=0.8, backward_s=0.1, optimizer_s=0.1)
        for time_s, source in (
            (0.25, "loss = crit(out, y)"),
            (0.45, "good = copy.deepcopy(net)"),
            (0.65, "good = copy.deepcopy(net)"),
            (0.85, "self.log('loss', loss)"),
        ):
            main.sample(begin_s + time_s, source)
    ledger = ledger_of(load_run(run.write()))
    assert ledger.share("loss") * ledger.window_s == pytest.approx(0.8)
    assert ledger.share("host_other") * ledger.window_s == pytest.approx(1.6)
    assert ledger.share("logging") * ledger.window_s == pytest.approx(0.8)
    other = ledger.account("host_other")
    assert other is not None and other.lines[0].source == "good = copy.deepcopy(net)"
    logging = ledger.account("logging.calls")
    assert logging is not None and logging.seconds == pytest.approx(0.8)


def test_a_function_of_the_users_computes_in_any_library() -> None:
    inside = [
        library("scipy/sparse/linalg/_dsolve/linsolve.py"),
        ["/home/me/train.py", 61, "Solve.forward", "lu = splu(k)", True],
        user("u = Solve.apply(face, ground)"),
    ]
    assert instead_of_loss(inside) is None and instead_of_other(inside) == LOSS
    assert instead_of_loss([*inside[:1], user("lu = splu(k)")]) == OTHER


def test_a_forward_method_that_is_called_directly_is_the_models() -> None:
    inside = [["/home/me/net.py", 9, "Layer.forward", "return x @ self.weight.T", True], user("g = self.forward(x)")]
    assert instead_of_other(inside) == FORWARD
    assert instead_of_other([*inside[:1], user("g = move(x)")]) is None
    force = [library("torch/autograd/__init__.py"), ["/home/me/net.py", 9, "Energy.forward", "grad(e, x)", True]]
    assert instead_of_other([*force, user("f = self.forward(x)")]) == BACKWARD
