"""A fix with live trials: what they drop, what they gain and the proof confirms, and what it does not."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flatout.compare.ratio import Ratio
from flatout.report.fix import lines, to_dict
from flatout.runner import Bounds
from flatout.trials import fix_live, screening
from flatout.trials.fix_options import Options
from flatout.trials.fixing import Fixing
from flatout.trials.isolation import NAMESPACE, Isolation
from flatout.trials.journal import begin
from flatout.trials.live import Finding
from flatout.trials.outcome import FAILED, OK, TrialRun
from flatout.trials.progress import ProgressLog
from flatout.trials.result import FixResult
from flatout.trials.screening import Costs
from flatout.trials.trial_run import TrialSetup
from tests.trials.fix_machine import COMMAND, Machine, remedy

WORKERS = remedy("workers", 2.0, num_workers=4)


def fixed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, machine: Machine, finding: Finding, **options: Any
) -> tuple[FixResult, list[Mapping[str, Any]]]:
    """A fix whose live trials all find the same; also the plans of these."""
    plans: list[Mapping[str, Any]] = []

    def run_blocks(
        setup: TrialSetup, settings: Mapping[str, Any], plan: Mapping[str, Any], deadline_s: float = 0.0
    ) -> TrialRun:
        plans.append(plan)
        run = SimpleNamespace(path=Path("nowhere"))
        return TrialRun(OK if finding.because != "fails" else FAILED, "the sky fell", 5.0, run=run)  # type: ignore[arg-type]

    monkeypatch.setattr(screening, "barred", lambda *_: "")
    monkeypatch.setattr(screening, "found", lambda run, blocks: [finding] * len(blocks.candidates))
    journal = begin(tmp_path, COMMAND)
    setup = TrialSetup(COMMAND, journal.folder, tmp_path / "runs", Bounds(), Isolation(NAMESPACE))
    fixing = Fixing(
        setup,
        Options(**{"live": True, **options}),
        journal,
        ProgressLog(True),
        run_once=machine.run,
        run_blocks=run_blocks,
        diagnose=machine.diagnose,
        clock=lambda: machine.now_s,
    )
    return fixing.run(), plans


def test_a_live_gain_is_kept_once_the_proof_confirms_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.8})
    found, plans = fixed(tmp_path, monkeypatch, machine, Finding(Ratio(1.7, 1.6, 1.8, 5), "in 5 pairs of blocks"))
    assert [plan["candidates"] for plan in plans] == [({"num_workers": 4},)]
    assert found.settings == {"num_workers": 4} and found.proof is not None and found.proof.ratio.low > 1.6
    # The look, one run that is diagnosed, and the pairs of the proof.
    assert machine.calls == [{}, {"num_workers": 4}, {}, {"num_workers": 4}, {"num_workers": 4}, {}]
    assert to_dict(found)["kept"][0]["live"]


def test_a_live_gain_that_the_proof_does_not_confirm_is_not_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.0})
    found, _ = fixed(tmp_path, monkeypatch, machine, Finding(Ratio(1.7, 1.6, 1.8, 5), "in 5 pairs of blocks"))
    assert not found.kept and found.proof is None
    text = " ".join("\n".join(lines(found)).split())
    assert "not confirmed 1.70x" in text and "the proof, in processes of its own, did not confirm it" in text


def test_several_remedies_are_tried_in_one_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seldom = remedy("seldom", 1.5, collect_seldom=True)
    batch, copies = remedy("batch", 1.4, batch_size=64), remedy("copies", 1.3, non_blocking=True)
    machine = Machine([WORKERS, seldom, batch, copies], {"num_workers": 1.8, "collect_seldom": 1.2})
    clear = Ratio(1.7, 1.6, 1.8, 5)
    found, plans = fixed(tmp_path, monkeypatch, machine, Finding(clear, "in 5 pairs of blocks"))
    assert [plan["candidates"] for plan in plans] == [
        ({"num_workers": 4}, {"collect_seldom": True}, {"non_blocking": True})
    ]
    assert found.settings == {"num_workers": 4, "collect_seldom": True, "non_blocking": True}
    assert [trial.remedy for trial in found.tried] == ["workers", "seldom", "copies", "batch"]
    assert found.tried[-1].restarted == "batch_size cannot be switched in a running training"
    assert machine.calls[:2] == [{}, found.settings]  # the look, and one run that is diagnosed


def test_a_live_trial_that_gains_nothing_drops_without_a_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.8})
    found, _ = fixed(tmp_path, monkeypatch, machine, Finding(Ratio(1.0, 0.99, 1.01, 5), "in 5 pairs of blocks"))
    assert [trial.outcome for trial in found.tried] == ["dropped"] and machine.calls == [{}]


@pytest.mark.parametrize(
    ("finding", "why"),
    [
        (Finding(None, "an iterable data set"), "an iterable data set"),
        (Finding(None, "fails"), "the live trial ended: the sky fell"),
        (Finding(Ratio(1.1, 0.9, 1.3, 5), "in blocks"), "the live trial did not decide it"),
    ],
)
def test_what_no_live_trial_decides_is_restarted_and_says_why(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finding: Finding, why: str
) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.8})
    found, _ = fixed(tmp_path, monkeypatch, machine, finding)
    assert found.settings == {"num_workers": 4} and not found.kept[0].live
    assert why in found.kept[0].restarted
    assert "Started anew for each run" in "\n".join(lines(found))


def test_without_live_trials_every_run_is_restarted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.8})
    found, plans = fixed(tmp_path, monkeypatch, machine, Finding(None, ""), live=False)
    assert found.settings == {"num_workers": 4} and not plans


@pytest.mark.parametrize(("start_s", "live"), [(2.0, False), (25.0, True)])
def test_unless_told_otherwise_only_slow_starts_are_spared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, start_s: float, live: bool
) -> None:
    machine = Machine([WORKERS], {"num_workers": 1.8})
    monkeypatch.setattr(fix_live, "Costs", lambda _, *rest: Costs(start_s, *rest))
    _, plans = fixed(tmp_path, monkeypatch, machine, Finding(None, ""), live=None)
    assert bool(plans) is live
