"""Compares two profiled runs, before and after a correction, from the JSON of their reports."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Prediction:
    """A remedy of the first report: the factor on samples/s that it promised, with its interval."""

    title: str
    predicted: float
    low: float
    high: float

    def score(self, measured: float) -> str:
        """Say how the prediction compares with the gain that was measured."""
        if measured < self.low:
            return f"below the interval, {1 - measured / self.predicted:.0%} less than predicted"
        if measured > self.high:
            return f"above the interval, {measured / self.predicted - 1:.0%} more than predicted"
        return f"inside the interval, {measured / self.predicted - 1:+.0%} from the predicted value"


@dataclass(frozen=True)
class Reading:
    """What the comparison needs of one report."""

    rate_sps: float  # waits included
    median_step_s: float
    wait_share: float | None  # of the measured window; None: the report has no such account
    causes: tuple[tuple[str, str], ...]  # (id, title) in rank order
    remedies: tuple[tuple[str, Prediction], ...]  # (cause, prediction) in rank order

    @classmethod
    def of(cls, report: dict[str, Any]) -> Reading:
        """Read the JSON of ``flatout report RUN --json``.

        Raises:
            ValueError: The run has no measured steps.
        """
        ledger = report["ledger"]
        if ledger is None or not ledger["steps"]["rate_sps"]:
            raise ValueError(f"the run has no measured steps: {report['verdict']}")
        shares = {account["id"]: float(account["share"]) for account in ledger["accounts"]}
        return cls(
            rate_sps=float(ledger["steps"]["rate_sps"]),
            median_step_s=float(ledger["steps"]["median_s"]),
            wait_share=shares.get("batch_wait"),
            causes=tuple((cause["id"], cause["title"]) for cause in report["causes"]),
            remedies=tuple(
                (
                    remedy["cause"],
                    Prediction(
                        remedy["title"], remedy["gain"]["predicted"], remedy["gain"]["low"], remedy["gain"]["high"]
                    ),
                )
                for remedy in report["remedies"]
            ),
        )

    def prediction(self, cause: str) -> Prediction | None:
        """Find the first remedy for a cause."""
        return next((prediction for of, prediction in self.remedies if of == cause), None)


def compare(before: Reading, after: Reading, corrected: str, guess: Reading | None = None) -> list[str]:
    """Lay the comparison out as lines of at most 80 columns, titles of causes and remedies aside.

    Args:
        before: The script with its mistake.
        after: The corrected script.
        corrected: The id of the cause that the correction removes.
        guess: The script with its mistake and a change that was guessed instead, if that was tried.
    """
    gain = after.rate_sps / before.rate_sps
    lines = [
        f"{'':26}{'before':>12}{'after':>12}",
        f"{'samples/s':26}{before.rate_sps:12.0f}{after.rate_sps:12.0f}   {gain:.2f}x, measured",
        f"{'median step':26}{_milliseconds(before):>12}{_milliseconds(after):>12}",
        f"{'waiting for batches':26}{_wait(before):>12}{_wait(after):>12}   of the time",
        f"{'first cause':26}{_first(before):>12}{_first(after):>12}",
        "",
    ]
    if before.causes and before.causes[0][0] != corrected:
        lines.append(f"The report puts {before.causes[0][0]} first here; the correction removes {corrected}.")
    prediction = before.prediction(corrected)
    if prediction is None:
        lines.append(f"The first report predicted no gain for {corrected}, so there is nothing to score.")
    else:
        lines += [
            f"Predicted: {prediction.predicted:.2f}x ({prediction.low:.2f} to {prediction.high:.2f})",
            f"  from: {prediction.title}",
            f"Measured:  {gain:.2f}x, {prediction.score(gain)}",
        ]
    if guess is not None:
        lines.append(f"The guess: {guess.rate_sps / before.rate_sps:.2f}x, measured ({guess.rate_sps:.0f} samples/s)")
    return lines


def _milliseconds(reading: Reading) -> str:
    return f"{1000 * reading.median_step_s:.0f} ms"


def _wait(reading: Reading) -> str:
    return "not measured" if reading.wait_share is None else f"{reading.wait_share:.0%}"


def _first(reading: Reading) -> str:
    # Two spaces keep the two columns apart when an id is wider than its column.
    return f"  {reading.causes[0][0]}" if reading.causes else "none"
