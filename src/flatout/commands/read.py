"""``flatout read``: what the logs of a run without flatout say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flatout.commands.options import AsJson


def read(
    paths: Annotated[list[Path], typer.Argument(metavar="PATH...", help="Logs, or folders with logs.")],
    as_json: AsJson = False,
) -> None:
    """Read logs of a run that flatout did not record.

    Progress bars, the output of trainers, TensorBoard and W&B files, nvidia-smi and SLURM output and more; several are
    joined by time. It shows throughput by epoch, the projected end with its interval, and each claim of the text that
    its own numbers can check: consistent, off and by how much, or not to be known.

    Example: flatout read train.log gpu.csv
    """
    from flatout.logs.postmortem import read_logs
    from flatout.report.logs import lines
    from flatout.report.logs_json import to_dict

    found = read_logs(paths)
    typer.echo(json.dumps(to_dict(found), indent=2, allow_nan=False) if as_json else "\n".join(lines(found)))
