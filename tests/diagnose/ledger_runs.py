"""Ledgers of hand-made runs."""

import pytest

from flatout.measure.ledger import ledger_of
from flatout.record import load_run
from tests.record.synthetic import RunBuilder


def written(run, **info):
    return ledger_of(load_run(run.write(**info)))


def seconds(ledger):
    return {account.id: pytest.approx(account.seconds) for account in ledger.accounts}


def check_sums(ledger):
    assert sum(a.seconds for a in ledger.accounts) + ledger.unaccounted_s == pytest.approx(ledger.window_s, abs=1e-6)
    assert ledger.startup_s + ledger.window_s + ledger.ending_s == pytest.approx(ledger.wall_s, abs=1e-6)
    assert sum(a.seconds for a in ledger.startup) == pytest.approx(ledger.startup_s, abs=1e-6)
    pending = list(ledger.accounts)
    while pending:
        account = pending.pop()
        if account.children:
            assert sum(c.seconds for c in account.children) == pytest.approx(account.seconds, abs=1e-6), account.id
        pending.extend(account.children)


def plain(tmp_path, steps=5, **step):
    run = RunBuilder(tmp_path)
    main = run.process()
    main.pause(1.0)
    loader = main.loader()
    main.iterate(loader)
    for _ in range(steps):
        main.step(loader, **step)
    return run, main
