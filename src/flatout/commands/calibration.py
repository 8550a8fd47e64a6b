"""``flatout calibration``: predicted against measured, over all trials of a folder."""

from __future__ import annotations

import json

import typer

from flatout.commands.options import FIXES_DIR, AsJson, FixesDir


def calibration(as_json: AsJson = False, fixes_dir: FixesDir = FIXES_DIR) -> None:
    """Compare predicted gains with measured ones, over all trials.

    The error is |predicted / measured - 1| of the factors on samples/s. A well-calibrated interval holds the measured
    factor in four of five trials.

    Example: flatout calibration
    """
    from flatout.errors import UsageError
    from flatout.report.calibration import lines, to_dict
    from flatout.trials.calibration import read_scored

    scored = read_scored(fixes_dir)
    if not scored:
        raise UsageError(f"no trial with a measurement below {fixes_dir}: `flatout fix` makes some")
    typer.echo(json.dumps(to_dict(scored), indent=2) if as_json else "\n".join(lines(scored, fixes_dir)))
