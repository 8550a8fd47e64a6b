"""``flatout agents``: the guide for coding agents."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from flatout.report.project_files import Change

AGENTS, SKILL = Path("AGENTS.md"), Path("skills/fast-training/SKILL.md")

Install = Annotated[
    Path | None,
    typer.Option(
        "--install",
        metavar="FOLDER",
        help=f"Show what would change in {AGENTS} of this project; --write does it.",
        show_default=False,
    ),
]


def agents(
    install: Install = None,
    skill: Annotated[
        bool, typer.Option("--skill", help=f"With --install: {SKILL}, a file of its own, in place of a section.")
    ] = False,
    assume: Annotated[
        str | None,
        typer.Option("--assume", metavar="GPU", help="Add what its maker says of a GPU that is not here: A10."),
    ] = None,
    mcp: Annotated[
        bool, typer.Option("--mcp", help="The entry of `flatout mcp` for MCP clients, in place of the guide.")
    ] = False,
    write: Annotated[
        bool, typer.Option("--write", help="With --install: change the file; the one before is kept beside it.")
    ] = False,
) -> None:
    """Print the guide for coding agents, or install it in a project.

    Rules that each come from a run that went wrong, this machine's numbers, and the commands. Without --write, nothing
    is changed.

    Example: flatout agents --install . --write

    The server of its tools: flatout agents --install . --mcp
    """
    import json

    from flatout.machine.snapshot import take_snapshot
    from flatout.plans.gpu_parts import chosen_part
    from flatout.report.agent_files import section_change, skill_change
    from flatout.report.agent_guide import guide_lines
    from flatout.report.client_entries import entry_changes, server_entry
    from flatout.report.project_files import inside

    _check_options(install, skill, assume, mcp, write)
    project = install or Path()
    assumed = chosen_part(assume, "--assume") if assume is not None else None
    guide = "\n".join(guide_lines(take_snapshot(), project.absolute(), assumed))
    if install is None:
        print(json.dumps({"mcpServers": {"flatout": server_entry(project)}}, indent=2) if mcp else guide)
        return
    if mcp:
        changes = entry_changes(install)
    else:
        path = inside(install, SKILL if skill else AGENTS)
        changes = [skill_change(path, guide) if skill else section_change(path, guide)]
    for change in changes:  # all of them before the first is written
        change.check()
    for change in changes:
        _make(change, write)
    if not write and any(change.diff for change in changes):
        options = " --skill" * skill + " --mcp" * mcp + (f" --assume {assumed.name}" if assumed else "")
        print(f"Nothing was changed. To do it: flatout agents --install {shlex.quote(str(install))}{options} --write")


def _make(change: Change, write: bool) -> None:
    """Make a change, or show it."""
    if change.note:
        print(f"{change.path}: {change.note}")
    elif not change.diff:
        print(f"{change.path}: as it should be")
    elif not write:
        print(change.diff, end="")
    else:
        backup = change.write()
        print(f"{change.path}: written" + (f"; the one before is {backup}" if backup else ""))


def _check_options(install: Path | None, skill: bool, assume: str | None, mcp: bool, write: bool) -> None:
    from flatout.errors import UsageError

    if install is None and (skill or write):
        raise UsageError(f"{'--skill' if skill else '--write'}: belongs to --install FOLDER, such as --install .")
    if install is not None and not install.is_dir():
        raise UsageError(f"--install {install}: there is no such folder; give that of the project")
    if skill and mcp:
        raise UsageError("--skill and --mcp: give one of them at a time")
    if assume is not None and mcp:
        raise UsageError(f"--assume {assume}: belongs to the guide, which --mcp does not write: leave one of them out")
