import pytest

from flatout.measure.device_time import device_busy
from flatout.measure.ledger import ledger_of
from flatout.probe import events as kinds
from flatout.record import load_run
from tests.diagnose.ledger_runs import check_sums, seconds
from tests.record.synthetic import RUN_START_NS, RunBuilder


def asynchronous(tmp_path, wait_s, device_s, steps=6):
    """The host launches a step in 0.1 s; the device works for ``device_s``, in order, as soon as it can."""
    run = RunBuilder(tmp_path)
    main = run.process()
    loader = main.loader()
    main.iterate(loader)
    free = 0.0
    for _ in range(steps):
        main.step(loader, wait_s=wait_s, forward_s=0.05, backward_s=0.04, optimizer_s=0.01)
        free = max(free, main.now_s - 0.1)
        for kind, share in ((kinds.FORWARD, 0.3), (kinds.BACKWARD, 0.6), (kinds.OPTIMIZER, 0.1)):
            main.emit(kinds.DEVICE_SPAN, free, free + share * device_s, kind)
            free += share * device_s
        # The host may run ahead by one step only.
        if main.now_s < free - device_s:
            main.spend(kinds.BLOCKING_READ, free - device_s - main.now_s, main.site(9, "loss.item()"))
    ledger = ledger_of(load_run(run.write()))
    check_sums(ledger)
    return ledger


def test_waits_that_the_device_never_noticed_cost_nothing(tmp_path):
    ledger = asynchronous(tmp_path, wait_s=0.3, device_s=1.0)
    assert ledger.account("batch_wait") is None and ledger.account("device_sync") is None
    assert ledger.account("forward").share + ledger.account("backward").share + ledger.account(
        "optimizer"
    ).share == pytest.approx(1.0)
    assert ledger.account("backward").share == pytest.approx(0.6, abs=0.05)


def test_waits_count_only_while_the_device_is_idle(tmp_path):
    # A step takes 1.1 s on the host, 0.4 s on the device, which begins 0.1 s before the next wait does.
    ledger = asynchronous(tmp_path, wait_s=1.0, device_s=0.4)
    assert seconds(ledger) == {"batch_wait": 5 * 0.7, "forward": 5 * 0.12, "backward": 5 * 0.24, "optimizer": 5 * 0.04}
    assert any("idle device" in note for note in ledger.notes)


def test_a_copy_beside_computing_costs_nothing(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    main.emit(kinds.DEVICE_SPAN, 1.0, 2.0, kinds.FORWARD)
    main.emit(kinds.DEVICE_SPAN, 1.5, 2.5, kinds.H2D)
    main.emit(kinds.DEVICE_SPAN, 3.0, 3.5, kinds.BACKWARD)
    busy = device_busy(load_run(run.write()).processes[0].events)
    found = [((s - RUN_START_NS) / 1e9, (e - RUN_START_NS) / 1e9) for s, e in zip(busy.start, busy.end, strict=True)]
    assert found == [(1.0, 2.0), (2.0, 2.5), (3.0, 3.5)]
    assert busy.owner.tolist() == [kinds.FORWARD, kinds.H2D, kinds.BACKWARD]


def test_a_closures_device_span_holds_those_of_its_passes(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    main.emit(kinds.DEVICE_SPAN, 0.0, 3.0, kinds.OPTIMIZER)
    main.emit(kinds.DEVICE_SPAN, 0.0, 1.0, kinds.FORWARD)
    main.emit(kinds.DEVICE_SPAN, 1.0, 2.5, kinds.BACKWARD)
    busy = device_busy(load_run(run.write()).processes[0].events)
    assert busy.owner.tolist() == [kinds.FORWARD, kinds.BACKWARD, kinds.OPTIMIZER]


def test_validation_on_the_device_stays_validation(tmp_path):
    run = RunBuilder(tmp_path)
    main = run.process()
    for number in range(3):
        main.step(forward_s=0.1, backward_s=0.1, optimizer_s=0.1)
        if number < 2:
            with main.inside(kinds.VALIDATION, main.text("evaluate")):
                main.emit(kinds.DEVICE_SPAN, main.now_s + 0.2, main.now_s + 0.7, kinds.FORWARD)
                main.pause(1.0)
    ledger = ledger_of(load_run(run.write()))
    check_sums(ledger)
    assert ledger.account("validation").seconds == pytest.approx(2.0)
