"""``flatout stage --volumes``: convert volumes for reading patches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from flatout.commands.stage_request import StageRequest
    from flatout.volumes.stored_cases import StoredCases


def stage_volumes(request: StageRequest) -> int:
    """Do what the options say; returns the exit code."""
    from flatout.extras import require

    require("volumes", ("google_crc32c", "zstandard"))  # formats ask for theirs
    options = request.volume_options()
    if request.check:
        return _check(request)
    root = _opened(request)
    if request.dry_run:
        from flatout.report.volume_staging import outlook_lines
        from flatout.volumes.outlook import look_ahead

        outlook = look_ahead(root, request.destination, options)
        print(json.dumps(outlook.as_json()) if request.as_json else outlook_lines(outlook))
        return 0
    from flatout.report.staging_progress import Show
    from flatout.report.volume_staging import state_line, summary_lines
    from flatout.volumes.staging import stage_volumes as convert

    with Show(quiet=request.quiet) as show:
        summary = convert(
            root,
            request.destination,
            options,
            lambda progress: show.state(lambda: state_line(progress)),
            show.line,
            show.progress,
        )
    print(json.dumps(summary.as_json()) if request.as_json else summary_lines(summary))
    return 0


def _opened(request: StageRequest) -> Path | StoredCases:
    from flatout.errors import UsageError
    from flatout.volumes.stored_cases import StoredCases

    address = request.address.removeprefix("file://")
    if "://" in address:
        return StoredCases(request.open_source())
    if not address:
        raise UsageError("SOURCE is empty: give a folder or a file (. for this folder)")
    return Path(address)


def _check(request: StageRequest) -> int:
    from flatout.report.volume_staging import check_lines
    from flatout.volumes.readback import check

    found = check(request.destination)
    print(json.dumps(found.as_json()) if request.as_json else check_lines(found))
    return 1 if found.damaged else 0
