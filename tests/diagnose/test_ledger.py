"""Which account each part of a step's time belongs to."""

import random

import pytest

from flatout.measure.build import build_view
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.diagnose.ledger_runs import check_sums, plain, seconds, written
from tests.record.synthetic import RunBuilder


def test_each_phase_gets_its_own_time(tmp_path):
    phases = {"wait_s": 0.5, "h2d_s": 0.1, "forward_s": 0.2, "loss_s": 0.05, "backward_s": 0.4, "optimizer_s": 0.3}
    run, _ = plain(tmp_path, **phases, read_s=0.07)
    ledger = written(run)
    check_sums(ledger)
    # The window begins after the first optimizer step and ends with the last: 4 steps, 4 reads.
    assert seconds(ledger) == {
        "batch_wait": 2.0,
        "h2d": 0.4,
        "forward": 0.8,
        "loss": 0.2,
        "backward": 1.6,
        "optimizer": 1.2,
        "device_sync": 0.28,
    }
    assert ledger.startup_s == pytest.approx(2.55) and ledger.ending_s == pytest.approx(0.07)
    assert ledger.steps.count == 4 and ledger.steps.samples == 16
    assert ledger.steps.rate_sps == pytest.approx(16 / ledger.window_s)
    assert ledger.steps.median_s == pytest.approx(1.62)
    assert [(line.line, line.seconds) for line in ledger.account("device_sync").lines] == [(20, pytest.approx(0.28))]


def test_the_time_of_a_launcher_belongs_to_the_start_up(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process(start_s=7.0)  # torchrun imported torch before it started the rank
    loader = main.loader()
    for _ in range(3):
        main.step(loader, wait_s=0.1, forward_s=0.1, backward_s=0.1)
    ledger = written(run)
    check_sums(ledger)
    assert {account.id: account.seconds for account in ledger.startup}["startup.launcher"] == pytest.approx(7.0)
    assert ledger.startup_s > 7.0


def test_startup_is_divided(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    main.pause(0.2)  # the interpreter
    main.spend(kinds.IMPORT, 1.5, main.text("torch"))
    main.pause(0.3)
    loader = main.loader()
    main.iterate(loader, 0.4)
    main.wait(loader, 0.6)
    with main.inside(kinds.FORWARD, main.text("Net"), 1, 1):
        main.spend(kinds.COMPILE, 2.0)
        main.pause(0.1)
    main.spend(kinds.BACKWARD, 0.2)
    main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    main.step(loader, wait_s=0.1, forward_s=0.1, backward_s=0.1)
    ledger = written(run)
    check_sums(ledger)
    assert {account.id: pytest.approx(account.seconds) for account in ledger.startup} == {
        "startup.compile": 2.0,
        "startup.imports": 1.7,
        "startup.first_batch": 0.6,
        "startup.first_step": 0.4,
        "startup.loader_start": 0.4,
        "startup.other": 0.3,
    }


def test_imports_that_no_span_covers_are_told_from_the_stacks(tmp_path):
    run, main = plain(tmp_path, 2, forward_s=0.1, backward_s=0.1)
    main.sample(0.2, "", file="<frozen importlib._bootstrap_external>", user=False)
    main.sample(0.4, "", file="<frozen importlib._bootstrap_external>", user=False)
    main.sample(0.6, "", file="<frozen importlib._bootstrap_external>", user=False)
    main.sample(0.8, "index = scan_folder(root)")
    startup = {account.id: account for account in written(run).startup}
    assert startup["startup.imports"].seconds == pytest.approx(0.75)
    assert startup["startup.other"].lines[0].source == "index = scan_folder(root)"


def test_the_innermost_span_owns_the_time_but_logs_keep_what_is_in_them(tmp_path):
    run, main = plain(tmp_path, 1, forward_s=0.1, backward_s=0.1)
    with main.inside(kinds.LOG, main.text("print")):
        main.pause(0.1)
        main.spend(kinds.BLOCKING_READ, 0.3, main.site(5, "print(loss)"))
    with main.inside(kinds.FORWARD, main.text("Net"), 1, 1):
        main.spend(kinds.BLOCKING_READ, 0.2, main.site(6, "x.item()"))
        main.pause(0.1)
    main.step(1, forward_s=0.0, backward_s=0.5)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("logging").seconds == pytest.approx(0.4)
    assert ledger.account("logging.print").seconds == pytest.approx(0.4)
    assert ledger.account("device_sync").seconds == pytest.approx(0.2)
    assert ledger.account("forward").seconds == pytest.approx(0.1)


def test_a_checkpoint_inside_a_framework_validation_stays_a_checkpoint(tmp_path):
    run, main = plain(tmp_path, 2, forward_s=0.1, backward_s=0.1)
    with main.inside(kinds.VALIDATION, main.text("Lightning evaluation loop")):
        main.spend(kinds.FORWARD, 1.0, main.text("Net"))
        with main.inside(kinds.CHECKPOINT, main.text("Lightning checkpoint")):
            main.spend(kinds.CHECKPOINT, 0.5, main.text("best.ckpt"), 2000)
    main.step(1, forward_s=0.1, backward_s=0.1)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(1.0)
    assert ledger.account("checkpoint").seconds == pytest.approx(0.5)
    assert ledger.account("checkpoint").note == "1 written, 2.0 KiB"


def test_a_write_into_memory_and_on_to_the_file_is_one_checkpoint(tmp_path):
    run, main = plain(tmp_path, 2, forward_s=0.1, backward_s=0.1)
    for _ in range(3):
        with main.inside(kinds.CHECKPOINT, main.text("Lightning checkpoint")):
            main.spend(kinds.CHECKPOINT, 0.5, main.text("BytesIO"), 2000)
        main.step(1, forward_s=0.1, backward_s=0.1)
    view = build_view(load_run(run.write()))
    assert view.checkpoints == 3 and view.ledger.account("checkpoint").note.startswith("3 written")


@pytest.mark.parametrize(("source", "account"), [("path.replace(final)", "checkpoint"), ("plot(net)", "host_other")])
def test_what_is_done_with_a_checkpoints_file_is_its_own(tmp_path, source, account):
    run, main = plain(tmp_path, 1, forward_s=0.1, backward_s=0.1)
    for _ in range(3):
        main.step(1, forward_s=0.1, backward_s=0.1)
        main.spend(kinds.CHECKPOINT, 0.2, main.text("state.new"), 1000)
        main.sample(main.now_s + 0.1, source)
        main.pause(0.3)
    main.step(1, forward_s=0.1, backward_s=0.1)
    ledger = written(run)
    check_sums(ledger)
    expected = {"checkpoint": 0.6, "host_other": 0.0} | ({"checkpoint": 1.5} if account == "checkpoint" else {})
    expected |= {"host_other": 0.9} if account == "host_other" else {}
    assert {id: seconds(ledger).get(id, 0.0) for id in expected} == pytest.approx(expected)


def test_other_code_is_named_by_its_sampled_lines(tmp_path):
    run, main = plain(tmp_path, 4, forward_s=0.1, backward_s=0.1, host_s=1.0)
    for start in (1.4, 1.7, 2.6, 3.8):
        main.sample(start, "metrics.update(out)" if start < 3 else "plot(out)", line=int(start))
    ledger = written(run)
    check_sums(ledger)
    other = ledger.account("host_other")
    assert other.seconds == pytest.approx(3.0)
    assert ledger.unaccounted_s == pytest.approx(0.0, abs=1e-6)
    assert sorted((line.source, line.line, round(line.seconds, 6)) for line in other.lines) == [
        ("metrics.update(out)", 1, 1.5),
        ("metrics.update(out)", 2, 0.75),
        ("plot(out)", 3, 0.75),
    ]
    assert other.children[0].id == "host_other.train.py:1"


def test_gaps_that_no_sample_ever_hit_are_told_by_their_place_and_very_short_ones_are_unaccounted(tmp_path):
    run, main = plain(tmp_path, 1, forward_s=0.1, backward_s=0.1)
    for _ in range(3):
        main.wait(1, 0.1)
        main.pause(0.2)  # before the forward pass: sampled once below
        main.spend(kinds.FORWARD, 0.1, main.text("Net"), 1, 1)
        main.spend(kinds.BACKWARD, 0.1)
        main.pause(0.3)  # before the optimizer step: never sampled
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
        main.pause(0.00001)
    main.sample(1.2 + 0.2, "augment(x)")
    ledger = written(run)
    check_sums(ledger)
    other = ledger.account("host_other")
    assert other.seconds == pytest.approx(1.5)
    unseen = [child for child in other.children if child.id.startswith("host_other.between_")]
    assert [child.label for child in unseen] == ["never sampled, between backward pass and optimizer"]
    assert unseen[0].seconds == pytest.approx(0.9)
    assert ledger.unaccounted_s == pytest.approx(0.00002, abs=1e-6)


def test_without_samples_the_ledger_says_that_code_could_not_be_named(tmp_path):
    run, _ = plain(tmp_path, forward_s=0.1, backward_s=0.1, host_s=0.1)
    ledger = written(run)
    assert ledger.account("host_other").lines == ()
    assert any("no stack samples" in note for note in ledger.notes)


def test_a_closure_keeps_forward_and_loss_apart_from_the_optimizer(tmp_path):
    run, main = plain(tmp_path, 1, forward_s=0.1, backward_s=0.1)
    for _ in range(2):
        main.wait(1, 0.1)
        with main.inside(kinds.OPTIMIZER, main.text("SGD")):
            main.pause(0.2)  # the training step's own code
            main.spend(kinds.FORWARD, 0.3, main.text("Net"), 1, 1)
            main.pause(0.05)
            main.spend(kinds.BACKWARD, 0.4)
            main.pause(0.15)  # the update
    main.sample(1.4, "batch = self.augment(batch)")
    ledger = written(run)
    check_sums(ledger)
    expected = {"batch_wait": 0.2, "host_other": 0.4, "forward": 0.6, "loss": 0.1, "backward": 0.8, "optimizer": 0.3}
    assert seconds(ledger) == expected
    assert ledger.steps.count == 2 and ledger.steps.accumulation == 1.0


@pytest.mark.parametrize(("network", "loss_s"), [("Net", 0.8), ("MultipleNegativesRankingLoss", 0.0)])
def test_a_module_named_a_loss_is_the_loss_beside_the_network(tmp_path, network, loss_s):
    run, main = plain(tmp_path, 1, forward_s=0.1, backward_s=0.1)
    for _ in range(2):
        main.wait(1, 0.1)
        main.spend(kinds.FORWARD, 0.3, main.text(network), 1, 1)
        if loss_s:
            main.spend(kinds.FORWARD, loss_s / 2, main.text("CrossEntropyLoss"), 1, 1)
        main.spend(kinds.BACKWARD, 0.4)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
        main.spend(kinds.FORWARD, 0.1, main.text("Net"), 0, 0)  # an evaluation, which may call what a loss holds
    ledger = written(run)
    check_sums(ledger)
    expected = {"forward": 0.6, "loss": loss_s}
    found = {account: ledger.account(account) for account in expected}
    assert {id: account.seconds if account else 0.0 for id, account in found.items()} == pytest.approx(expected)


@pytest.mark.parametrize("seed", range(25))
def test_accounts_and_the_rest_add_up_on_any_nesting(tmp_path, seed):
    chance = random.Random(seed)
    run = RunBuilder(tmp_path)
    main = run.process()
    loaders = [main.loader(), main.loader()]
    wild = [kinds.FORWARD, kinds.H2D, kinds.BLOCKING_READ, kinds.LOG, kinds.CHECKPOINT, kinds.COMPILE, kinds.VALIDATION]
    wild += [kinds.OPTIMIZER, kinds.BACKWARD, kinds.IMPORT, kinds.COLLECTIVE, kinds.ZERO_GRAD]

    def nest(depth):
        main.pause(chance.choice([0.0, 0.000005, 0.1]))
        with main.inside(chance.choice(wild), main.text("thing"), chance.randint(0, 1), chance.randint(0, 1)):
            for _ in range(chance.randint(0, 2) if depth else 0):
                nest(depth - 1)
            main.pause(chance.random())

    for loader in loaders:
        main.iterate(loader, 0.01)
    for number in range(12):
        if chance.random() < 0.2:
            main.iterate(loaders[0], chance.random())
        main.step(loaders[0], wait_s=chance.random(), forward_s=0.1, backward_s=0.2)
        if chance.random() < 0.3:
            main.wait(loaders[1], 0.1)
            main.mode(chance.random() < 0.5)
        nest(3)
        main.sample(main.now_s - chance.random(), f"work({number})", line=number)
        if seed % 2:
            start = main.now_s - chance.random()
            main.emit(kinds.DEVICE_SPAN, start, start + chance.random(), chance.choice([4, 6, 7, 8]))
    check_sums(written(run))
