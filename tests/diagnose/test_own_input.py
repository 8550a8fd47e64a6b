"""Which sampled stacks make or await a batch, and which line is named for them."""

from __future__ import annotations

import numpy as np
import pytest

from flatout.measure.build import build_view
from flatout.measure.ledger import ledger_of
from flatout.measure.own_input import is_input
from flatout.measure.samples import line_of
from flatout.measure.worker_records import divide_time
from flatout.record import load_run
from tests.record.synthetic import RunBuilder

SITE = "/venv/lib/python3.11/site-packages"


def user(source: str, function: str = "main", line: int = 1) -> list[object]:
    return ["/home/me/train.py", line, function, source, True]


def library(path: str, function: str, source: str = "") -> list[object]:
    return [f"{SITE}/{path}", 1, function, source, False]


@pytest.mark.parametrize(
    "frames",
    [
        [user("x = data[i : i + size]", "get_batch"), user("X, Y = get_batch('train')")],
        [user("X, Y = get_batch('train')")],
        [user("rows = np.random.choice(len(grams), size)", "random_batch"), user("inputs, targets = random_batch()")],
        [user("inputs, targets = random_batch()")],
        [
            library("batchgenerators/dataloading/multi_threaded_augmenter.py", "MultiThreadedAugmenter.__next__"),
            library("nnunetv2/training/nnUNetTrainer.py", "run_training", "next(self.dataloader_train)"),
        ],
        [user("yield x, y", "pairs"), user("for x, y in pairs(1000):")],
        [user("image = cv2.imread(path)")],
        [user("states, actions = self.replay_buffer.sample(256)")],
        [
            library("PIL/Image.py", "open", "fp = builtins.open(filename)"),
            library("matplotlib/image.py", "imread"),
            user("x = plt.imread(path)"),
        ],
        [library("threading.py", "wait"), library("queue.py", "get"), user("batch = next(batches)")],
    ],
)
def test_code_that_gives_batches_is_input(frames: list[list[object]]) -> None:
    assert is_input(frames)


@pytest.mark.parametrize(
    "frames",
    [
        [user("average.update(model)")],
        [user("action = policy(state).sample()")],
        [library("tqdm/std.py", "tqdm.__iter__"), user("for step in tqdm(range(100)):")],
        [library("torch/nn/modules/module.py", "named_parameters"), user("for p in model.parameters():")],
        [library("matplotlib/figure.py", "savefig"), user("draw(losses)")],
        [
            library("matplotlib/font_manager.py", "json_load", "with open(filename) as fh:"),
            library("matplotlib/figure.py", "savefig"),
            user("draw(losses)"),
        ],
        [library("PIL/Image.py", "save", "fp = builtins.open(filename)"), user("save_image(grid, 'fake.png')")],
        # Anomaly detection keeps a stack trace of each operator: source files are read for it.
        [
            ["/usr/lib/python3.11/linecache.py", 139, "updatecache", "lines = fp.readlines()", False],
            ["/usr/lib/python3.11/traceback.py", 227, "format_stack", "return format_list(extract_stack(f))", False],
            user("ce = sum(F.cross_entropy(l, cat[:, i]) for i, l in enumerate(logits))", "elbo"),
        ],
        [],
    ],
)
def test_other_code_between_the_calls_of_a_step_is_no_input(frames: list[list[object]]) -> None:
    assert not is_input(frames)


def test_a_loop_that_no_step_computes_in_is_no_loop_over_batches() -> None:
    thresholds = [library("numpy/_core/numeric.py", "linspace"), user("for t in np.linspace(0, 1, 499):", "best_f1")]
    batches = [library("numpy/random.py", "shuffle"), user("for x, y in pairs(1000):")]
    loops = {("/home/me/train.py", "main")}
    assert not is_input(thresholds, loops)
    assert is_input(batches, loops)


@pytest.mark.parametrize(
    ("frames", "named"),
    [
        (
            [
                library("torch/_ops.py", "call"),
                library("transformers/trainer.py", "log"),
                library("trl/sft.py", "main"),
                ["/venv/bin/trl", 8, "m", "", True],
            ],
            "transformers",
        ),
        (
            [library("numpy/core.py", "add"), library("yolo/train.py", "step"), ["/venv/bin/yolo", 8, "m", "", True]],
            "yolo",
        ),
        (
            [
                library("pytorch_lightning/core/module.py", "log"),
                user("self.log('loss', loss)", "training_step"),
                library("pytorch_lightning/strategies/strategy.py", "training_step"),
                user("trainer.fit(model)"),
            ],
            "/home/me/train.py",
        ),
        (
            [library("pytorch_lightning/loops/fit_loop.py", "advance"), user("trainer.fit(model)")],
            "pytorch_lightning",
        ),
        (
            [library("matplotlib/a.py", "draw"), library("matplotlib/b.py", "save"), user("plot(x)")],
            "/home/me/train.py",
        ),
    ],
)
def test_the_programs_own_line_is_named_not_a_librarys(tmp_path, frames, named) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    id = main.name("stack", frames=frames)
    main.step(forward_s=0.1, backward_s=0.1)
    process = load_run(run.write()).processes[0]
    line = line_of(process.names, id)
    assert line is not None
    assert named in line.file


def test_times_of_fetches_add_up_to_their_wall_time_though_the_kernel_counts_late() -> None:
    wall = np.full(4, 2.0)
    cpu, runqueue, blocked = divide_time(wall, np.array([0.0, 4.0, 0.0, 2.0]), np.zeros(4))
    assert cpu.sum() == pytest.approx(6.0)
    assert (cpu + runqueue + blocked).sum() == pytest.approx(wall.sum())
    cpu, runqueue, blocked = divide_time(wall, np.full(4, 1.4), np.full(4, 1.24))  # 70% and 62%
    assert cpu.sum() + runqueue.sum() == pytest.approx(wall.sum())
    assert blocked.sum() == 0.0


def test_a_line_that_works_on_the_batch_before_the_forward_pass_is_input_too(tmp_path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    for time_s, source in (
        (0.7, "ids, labels = get_batch()"),
        (1.7, "places = labels != -100"),
        (2.7, "ema.update(net)"),
    ):
        main.sample(time_s, source)
    ledger = ledger_of(load_run(run.write()))
    # Two of three samples, of three gaps.
    assert ledger.account("batch_wait").seconds == pytest.approx(1.2)
    assert ledger.account("host_other").seconds == pytest.approx(0.6)


def test_tensors_made_of_lists_before_the_forward_pass_are_input(tmp_path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    main.sample(0.7, "states = torch.tensor([one.state for one in memory], device=device)")
    main.sample(1.7, "states = states / 255")
    main.sample(2.7, "print(loss)")
    ledger = ledger_of(load_run(run.write()))
    assert ledger.account("batch_wait").seconds == pytest.approx(1.2)


def test_what_a_call_of_the_model_gives_is_no_batch_though_its_line_makes_a_tensor(tmp_path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    calls = "logits, value = policy(torch.from_numpy(state))"
    main.sample(0.05, calls, line=71)  # in the forward pass
    main.sample(0.7, calls, line=71)  # before it
    main.sample(1.7, "choice = Categorical(logits=logits)", line=72)
    main.sample(2.7, "print(loss)")
    ledger = ledger_of(load_run(run.write()))
    assert ledger.account("batch_wait").seconds == pytest.approx(0.6)
    assert ledger.account("host_other").seconds == pytest.approx(1.2)


def test_the_other_lines_of_a_function_that_makes_tensors_are_input_but_for_the_loop(tmp_path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    loop = user("draw(memory)", "train")
    main.sample(0.05, "net(x)", function="train")
    main.sample(0.7, "rows = np.random.choice(size, 32)", function="draw", outer=(loop,))
    main.sample(1.7, "return torch.from_numpy(states[rows])", function="draw", outer=(loop,))
    main.sample(2.7, "average = 0.9 * average + 0.1 * loss", function="train")
    ledger = ledger_of(load_run(run.write()))
    assert ledger.account("batch_wait").seconds == pytest.approx(1.2)
    assert ledger.account("host_other").seconds == pytest.approx(0.6)


def test_the_functions_that_make_input_are_those_below_the_training_loop(tmp_path) -> None:
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    loop = user("train()", "train")
    for step in range(4):
        main.sample(step + 0.05, "net(x)", function="train")
        batch = user("for i in rows: load(i)", "get_batch")
        main.sample(step + 0.7, "decode(path)", function="load", outer=(batch, loop))
        main.sample(step + 0.8, "x = stack(rows)", function="get_batch", outer=(loop,))
    view = build_view(load_run(run.write()))
    assert view is not None
    outer, inner = view.input_functions
    assert (outer.name, outer.cpu_share, inner.name, inner.cpu_share) == ("get_batch", 1.0, "load", pytest.approx(0.5))
    assert outer.below[0] == pytest.approx(0.5) and inner.depth == outer.depth + 1
