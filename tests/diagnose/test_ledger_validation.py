import pytest

from flatout.diagnose.ranking import judge
from flatout.measure.build import build_view
from flatout.measure.ledger import ledger_of
from flatout.measure.training import find_training
from flatout.predict.context import Context
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.diagnose.ledger_runs import check_sums
from tests.record.synthetic import RUN_START_NS, RunBuilder, ns


def epochs(tmp_path, validate, steps=4, passes=3):
    """Passes of training, each followed by ``validate(main, loader)``."""
    run = RunBuilder(tmp_path)
    main = run.process()
    train, val = main.loader(), main.loader()
    for _ in range(passes):
        main.iterate(train)
        for _ in range(steps):
            main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
        validate(main, val)
    loaded = load_run(run.write())
    return loaded, ledger_of(loaded), (train, val)


def by_loader(main, val, batches=2):
    main.iterate(val, 0.05)
    for _ in range(batches):
        main.wait(val, 0.2)
        main.spend(kinds.FORWARD, 0.3, main.text("Net"))
        main.pause(0.1)  # the metric
    main.end_pass(val, 0.05)
    main.pause(0.1)


def test_validation_is_found_by_its_own_loader(tmp_path):
    run, ledger, (train, val) = epochs(tmp_path, by_loader)
    check_sums(ledger)
    # 0.05 + 2 * 0.6 + 0.05 + 0.1 up to the next pass; the last one ends with its pass over the loader.
    assert ledger.account("validation").seconds == pytest.approx(3 * 1.4 - 0.1)
    assert ledger.account("batch_wait").seconds == pytest.approx(11 * 0.1)
    training = find_training(run)
    assert (training.loaders, training.other_loaders) == ((train,), (val,))


def test_a_validation_of_one_batch_is_no_training(tmp_path):
    run, ledger, (train, _val) = epochs(tmp_path, lambda main, val: by_loader(main, val, 1))
    check_sums(ledger)
    assert find_training(run).loaders == (train,)
    assert ledger.account("validation").seconds == pytest.approx(3 * 0.8 - 0.1)


def test_validation_is_found_between_eval_and_train(tmp_path):
    def validate(main, _):
        main.mode(train=False)
        main.spend(kinds.FORWARD, 0.6, main.text("Net"))
        main.pause(0.2)
        main.mode(train=True)

    _, ledger, _ = epochs(tmp_path, validate)
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(2 * 0.8)


def test_eval_around_training_steps_is_not_validation(tmp_path):
    def freeze(main, _):
        main.mode(train=False)  # a frozen backbone; the next pass trains on
        main.pause(0.5)

    _, ledger, _ = epochs(tmp_path, freeze)
    check_sums(ledger)
    assert ledger.account("validation") is None


def test_validation_is_found_by_the_frameworks_span(tmp_path):
    def validate(main, val):
        with main.inside(kinds.VALIDATION, main.text("Hugging Face evaluate")):
            by_loader(main, val)
            main.pause(0.6)

    _, ledger, _ = epochs(tmp_path, validate)
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(3 * 2.0)


def test_a_checkpoint_ends_a_validation(tmp_path):
    def validate(main, val):
        by_loader(main, val)
        main.spend(kinds.CHECKPOINT, 0.7, main.text("last.pt"), 500)

    _, ledger, _ = epochs(tmp_path, validate)
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(3 * 1.4 - 0.1)
    assert ledger.account("checkpoint").seconds == pytest.approx(2 * 0.7)


@pytest.mark.parametrize(("stop", "whole"), [("finished", True), ("failed", False)])
def test_the_last_epoch_keeps_its_validation_and_no_test_if_the_training_ended_by_itself(tmp_path, stop, whole):
    run = RunBuilder(tmp_path)
    main = run.process()
    train, val, test = main.loader(), main.loader(), main.loader()

    def evaluate(loader):
        with main.inside(kinds.VALIDATION, main.text("Lightning evaluation loop")):
            main.iterate(loader)
            main.wait(loader, 0.2)
            main.spend(kinds.FORWARD, 0.3, main.text("Net"))

    evaluate(val)  # to try it out
    for _ in range(3):
        main.iterate(train)
        for _ in range(5):
            main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1)
        evaluate(val)  # Lightning counts the batches: no pass ends by asking for one more
    evaluate(test)
    ledger = ledger_of(load_run(run.write(stop=stop, exit_code=0 if whole else 1)))
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(1.5 if whole else 1.0)
    assert [round(epoch.seconds, 3) for epoch in ledger.epochs] == [2.0, 2.0, 2.0 if whole else 1.5]
    # As many steps as the pass before are a whole pass, however the training ended.
    assert [epoch.complete for epoch in ledger.epochs] == [True, True, True]


@pytest.mark.parametrize("of", ["loader", "passes"])
def test_a_validation_in_which_the_recording_was_stopped_belongs_to_the_window(tmp_path, of):
    run = RunBuilder(tmp_path)
    main = run.process()
    train, val = main.loader(), main.loader()
    main.iterate(train)
    for _ in range(6):
        main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
    begun_s = main.now_s
    for _ in range(8):
        if of == "loader":
            main.wait(val, 0.25)
        else:
            main.spend(kinds.FORWARD, 0.25, main.text("Net"))
    path = run.write(window_end_ns=RUN_START_NS + ns(main.now_s), stop="seconds")
    view = build_view(load_run(path))
    check_sums(view.ledger)
    assert view.ledger.account("validation").seconds == pytest.approx(main.now_s - begun_s)
    assert (view.validations, view.validation_unfinished, view.ledger.steps.count) == (1, True, 5)
    (found,) = [cause for cause in judge(Context.of(view))[0] if cause.id == "validation"]
    assert found.share == pytest.approx(2.0 / 4.0, abs=0.01)
    assert "stopped in the last one" in " ".join(one.text for one in found.evidence)
    assert ledger_of(load_run(path)).account("validation") is None  # no speed to compare


def test_what_else_follows_the_last_step_is_no_validation(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    train = main.loader()
    main.iterate(train)
    for _ in range(6):
        main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
    main.pause(3.0)
    view = build_view(load_run(run.write(window_end_ns=RUN_START_NS + ns(main.now_s), stop="seconds")))
    assert view.ledger.account("validation") is None and not view.validation_unfinished


def test_an_iterator_made_early_is_not_a_validation(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    train, val = main.loader(), main.loader()
    main.iterate(train)
    main.iterate(val, 0.1)
    for _ in range(4):
        main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1)
    main.wait(val, 0.2)
    main.pause(0.3)
    main.step(train, wait_s=0.1, forward_s=0.1, backward_s=0.1)
    ledger = ledger_of(load_run(run.write()))
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(0.5)


def test_two_loaders_drawn_from_in_turn_both_feed_training(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    labelled, unlabelled = main.loader(), main.loader()
    main.iterate(labelled)
    main.iterate(unlabelled)
    for _ in range(5):
        main.wait(labelled, 0.2)
        main.step(unlabelled, wait_s=0.1, forward_s=0.1, backward_s=0.1)
    loaded = load_run(run.write())
    ledger = ledger_of(loaded)
    check_sums(ledger)
    assert set(find_training(loaded).loaders) == {labelled, unlabelled}
    assert ledger.account("batch_wait").seconds == pytest.approx(4 * 0.3)
    assert ledger.account("validation") is None


def test_batches_taken_one_ahead_cost_no_step(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    main.wait(loader, 0.1)
    for number in range(5):
        if number < 4:
            main.wait(loader, 0.1)
        main.step(forward_s=0.1, backward_s=0.2, optimizer_s=0.1)
    ledger = ledger_of(load_run(run.write()))
    check_sums(ledger)
    assert ledger.steps.count == 4
