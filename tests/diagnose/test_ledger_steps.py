"""Which steps a ledger counts: loops, loaders, windows, epochs and processes."""

import pytest

from flatout.measure.ledger import ledger_of
from flatout.measure.training import find_training
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.diagnose.ledger_runs import check_sums, plain, written
from tests.record.synthetic import RunBuilder


def test_accumulation_counts_batches_an_optimizer_step_without_clipping(tmp_path):
    run, main = plain(tmp_path, 0)
    for batch in range(12):
        updates = batch % 4 == 3
        main.step(1, forward_s=0.1, backward_s=0.1, optimizer_s=None)
        if updates:
            main.spend(kinds.OPTIMIZER, 0.01, main.text("clip_grad_norm_"))
            main.spend(kinds.OPTIMIZER, 0.02, main.text("AdamW"))
    ledger = written(run)
    check_sums(ledger)
    # The first step ends with the first backward pass, because a batch comes before the optimizer step.
    assert ledger.startup_s == pytest.approx(1.2)
    assert ledger.steps.count == 11
    assert ledger.steps.accumulation == pytest.approx(11 / 3)
    assert ledger.account("optimizer").seconds == pytest.approx(0.09)


def test_a_window_that_ends_before_an_optimizer_step_makes_no_accumulation(tmp_path):
    run, main = plain(tmp_path, 3, forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
    main.step(1, forward_s=0.1, backward_s=0.1, optimizer_s=None)
    ledger = written(run)
    assert ledger.steps.count == 3 and ledger.steps.accumulation == 1.0


def test_without_forward_events_the_time_before_backward_is_taken_for_it(tmp_path):
    run, main = plain(tmp_path, 1, forward_s=None, backward_s=0.1)
    for _ in range(2):
        main.wait(1, 0.1)
        main.spend(kinds.H2D, 0.05, main.site(3, "x.cuda()"), 10)
        main.pause(0.3)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("forward").seconds == pytest.approx(0.6)
    assert any("forward pass was not seen" in note for note in ledger.notes)


def test_functions_on_data_that_is_there_are_the_loss_from_one_step_to_the_next_backward_pass(tmp_path):
    run, main = plain(tmp_path, 1, forward_s=None, backward_s=0.1)
    for _ in range(4):
        main.pause(0.3)
        main.spend(kinds.BACKWARD, 0.2)
        main.pause(0.05)  # before the optimizer's step
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("loss").seconds == pytest.approx(0.9)
    # The first gap follows no step of an optimizer; the short ones lie before one.
    assert ledger.account("host_other").seconds == pytest.approx(0.5)
    assert any("is the loss" in note for note in ledger.notes)


def test_a_loop_without_a_loader_steps_by_its_optimizer(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    main.sample(0.7, "x = make_batch()")
    ledger = written(run)
    check_sums(ledger)
    assert ledger.steps.count == 3 and ledger.steps.median_s == pytest.approx(1.0)
    assert ledger.epochs == () and ledger.account("host_other") is None
    assert ledger.account("batch_wait").seconds == pytest.approx(1.8)
    assert ledger.account("batch_wait.fetch_cpu.other").lines[0].source == "x = make_batch()"
    assert any("samples/s: not measured, because no DataLoader fed the steps" in note for note in ledger.notes)


def test_of_a_gap_without_a_loader_only_what_makes_batches_is_input(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1, host_s=0.6)
    for time_s, source in ((0.7, "x = make_batch()"), (0.8, "board.draw(loss)"), (1.7, "board.draw(loss)")):
        main.sample(time_s, source)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("batch_wait").seconds == pytest.approx(0.6)
    assert ledger.account("host_other").seconds == pytest.approx(1.2)
    assert [line.source for line in ledger.account("host_other").lines] == ["board.draw(loss)"]


def test_input_between_forward_and_backward_pass_is_no_loss(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(4):
        main.step(forward_s=0.1, loss_s=0.5, backward_s=0.2, optimizer_s=0.1)
    main.sample(0.3, "x, y = get_batch('train')")
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("batch_wait").seconds == pytest.approx(1.5) and ledger.account("loss") is None


@pytest.mark.parametrize("complete", [True, False])
def test_a_loader_that_draws_one_batch_ahead_has_as_many_steps_as_were_trained(tmp_path, complete):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=0)
    trained = 0
    for _ in range(3):
        main.iterate(loader)
        main.wait(loader, 0.1)
        for _ in range(4):  # five batches a pass
            main.wait(loader, 0.1)
            main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1)
            trained += 1
        if complete or trained < 12:
            main.end_pass(loader)
            main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1)
            trained += 1
    ledger = written(run)
    check_sums(ledger)
    assert ledger.steps.count == trained - 1
    assert ledger.steps.samples == 4 * (trained - 1)


def test_the_long_first_step_is_not_in_the_window_of_a_loader_that_draws_ahead(tmp_path):
    """The second batch is drawn before the first step, in which algorithms are tried for seconds."""
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader(num_workers=0)
    main.iterate(loader)
    main.wait(loader, 0.1)
    for number in range(8):
        main.wait(loader, 0.1)
        main.step(forward_s=13.0 if number == 0 else 0.1, backward_s=0.2, optimizer_s=0.1)
    main.end_pass(loader)
    main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.steps.count == 8
    # The last two steps of a pass follow its last batch, so they are one of 0.9 s and one of nothing.
    assert ledger.steps.median_s == pytest.approx(0.5) and ledger.steps.max_s == pytest.approx(0.9)


def test_manual_updates_after_a_clipped_gradient_are_counted_once_each(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(5):
        main.spend(kinds.FORWARD, 0.1, main.text("Net"), 1, 1)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("clip_grad_norm_"))
        main.pause(0.1)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.steps.count == 4 and ledger.steps.min_s == pytest.approx(0.5)


def test_samples_without_a_loader_are_those_of_the_largest_module(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    net, loss = main.text("Net"), main.text("Loss")
    for _ in range(4):
        main.emit(kinds.INPUT, main.now_s, main.now_s, net, 8)
        main.spend(kinds.FORWARD, 0.1, net, 1, 1)
        main.emit(kinds.INPUT, main.now_s, main.now_s, loss, 64)
        main.spend(kinds.FORWARD, 0.01, loss, 1, 1)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    assert written(run).steps.samples == 3 * 8


@pytest.mark.parametrize(("every", "samples"), [(8, 11 * 8), (2, 3 * 8 * 2)])
def test_the_step_after_an_evaluation_has_as_many_samples_as_the_others(tmp_path, every, samples):
    run = RunBuilder(tmp_path)
    main = run.process()
    for step in range(12):
        if step % every:
            main.emit(kinds.INPUT, main.now_s, main.now_s, main.text("Net"), 8)
        main.spend(kinds.FORWARD, 0.1, main.text("Net"), 1, 1)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    assert written(run).steps.samples == samples


@pytest.mark.parametrize("dropout_s", [0.001, 0.3])
def test_a_batch_that_several_layers_are_given_is_counted_once(tmp_path, dropout_s):
    # As where a script calls model.forward(): each layer is an outermost module then, and the loss is one.
    run = RunBuilder(tmp_path)
    main = run.process()
    calls = {"Embedding": 0.02, "Dropout": dropout_s, "Linear": 0.1}
    for _ in range(5):
        for name in ("Embedding", "Dropout", "Dropout", "Linear", "Dropout", "Embedding"):
            main.emit(kinds.INPUT, main.now_s, main.now_s, main.text(name), 8)
            main.spend(kinds.FORWARD, calls[name], main.text(name), 1, 1)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    assert written(run).steps.samples == 4 * 8


def test_parts_of_a_batch_that_are_given_in_turn_are_added(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for _ in range(5):
        for name in ("Net", "Loss") * 3:
            main.emit(kinds.INPUT, main.now_s, main.now_s, main.text(name), 8)
            main.spend(kinds.FORWARD, 0.1, main.text(name), 1, 1)
        main.spend(kinds.BACKWARD, 0.2)
        main.spend(kinds.OPTIMIZER, 0.1, main.text("SGD"))
    assert written(run).steps.samples == 4 * 24


def test_two_optimizers_after_two_backward_passes_are_told_as_recorded(tmp_path):
    run, main = plain(tmp_path, 0)
    for _ in range(3):
        main.wait(1, 0.1)
        for name in ("AdamG", "AdamD"):
            main.spend(kinds.FORWARD, 0.1, main.text("Net"), 1, 1)
            main.spend(kinds.BACKWARD, 0.1)
            main.spend(kinds.OPTIMIZER, 0.05, main.text(name))
    ledger = written(run)
    check_sums(ledger)
    assert ledger.steps.accumulation == 1.0


def test_the_window_ends_with_the_last_step_inside_the_bounds(tmp_path):
    run, _ = plain(tmp_path, 6, wait_s=0.5, forward_s=0.25, backward_s=0.25)
    ledger = written(run, window_end_ns=10**15 + 5_100_000_000)
    check_sums(ledger)
    assert ledger.startup_s == pytest.approx(2.0) and ledger.window_s == pytest.approx(3.0)
    assert ledger.steps.count == 3 and ledger.ending_s == pytest.approx(2.0)
    assert not ledger.epochs[0].complete


def test_epochs_carry_their_own_shares_and_boundaries(tmp_path):
    run, main = plain(tmp_path, 2, wait_s=0.5, backward_s=0.5)
    for wait_s in (0.25, 1.0):
        main.end_pass(1, 0.1)
        main.iterate(1, 0.4)
        for _ in range(2):
            main.step(1, wait_s=wait_s, backward_s=0.5)
    main.end_pass(1)
    ledger = written(run)
    check_sums(ledger)
    assert [epoch.steps for epoch in ledger.epochs] == [2, 2, 2]
    assert [epoch.seconds for epoch in ledger.epochs] == pytest.approx([2.1, 2.0, 3.4])
    assert all(epoch.complete for epoch in ledger.epochs)
    assert ledger.epochs[2].shares["batch_wait"] == pytest.approx(2.0 / 3.4)
    assert ledger.account("epoch_boundary").seconds == pytest.approx(1.0)
    assert ledger.account("epoch_boundary.start").seconds == pytest.approx(0.8)
    assert ledger.account("epoch_boundary.end").seconds == pytest.approx(0.2)


def test_the_lowest_rank_leads_and_the_others_are_counted(tmp_path):
    run = RunBuilder(tmp_path)
    for rank, backward_s in ((2, 0.3), (0, 0.1), (1, 0.2)):
        main = run.process(rank=rank)
        for _ in range(3):
            main.step(backward_s=backward_s)
    ledger = written(run)
    assert ledger.account("backward").seconds == pytest.approx(0.2)
    assert "3 training processes were recorded; the ledger is that of rank 0" in ledger.notes


def test_spans_of_other_threads_do_not_count(tmp_path):
    run, main = plain(tmp_path, 3, forward_s=0.5, backward_s=0.5)
    main.emit(kinds.LOG, 2.0, 3.0, main.text("tensorboard"), thread=1)
    ledger = written(run)
    check_sums(ledger)
    assert ledger.account("logging") is None


def test_a_process_killed_in_the_middle_gives_the_steps_before(tmp_path):
    run, _main = plain(tmp_path, 4, wait_s=0.5, forward_s=0.25, backward_s=0.25)
    path = run.write(end_ns=None, stop="terminated")
    file = next((path / "processes").glob("*.events"))
    data = file.read_bytes()
    file.write_bytes(data[: kinds.HEADER_BYTES + kinds.EVENT.size * 12 + 7])
    loaded = load_run(path)
    ledger = ledger_of(loaded)
    check_sums(ledger)
    assert ledger.steps.count == 2
    assert any("cut inside its last event" in problem for problem in loaded.problems)


def test_one_step_has_a_startup_and_no_window(tmp_path):
    run, _ = plain(tmp_path, 1, forward_s=0.5, backward_s=0.5)
    ledger = written(run)
    assert (ledger.window_s, ledger.accounts, ledger.steps.count) == (0.0, (), 0)
    assert ledger.startup_s == pytest.approx(2.0)
    assert "only one step was complete: there is no window to divide" in ledger.notes


def test_a_run_that_never_trains_has_no_ledger(tmp_path):
    run = RunBuilder(tmp_path)
    run.process().spend(kinds.FORWARD, 1.0)
    assert written(run) is None


def test_the_step_table_includes_the_first_step(tmp_path):
    run, _ = plain(tmp_path, 3, wait_s=0.5, forward_s=0.25, backward_s=0.25)
    training = find_training(load_run(run.write()))
    assert training is not None
    table = training.steps
    assert table.duration_s == pytest.approx([1.0, 1.0, 1.0])
    assert table.wait_s == pytest.approx([0.5, 0.5, 0.5])
    assert table.samples.tolist() == [4, 4, 4]
