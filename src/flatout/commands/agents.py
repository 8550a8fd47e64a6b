"""``flatout agents``: the guide for coding agents."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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
    write: Annotated[
        bool, typer.Option("--write", help="With --install: change the file; the one before is kept beside it.")
    ] = False,
) -> None:
    """Print the guide for coding agents, or install it in a project.

    Rules that each come from a run that went wrong, this machine's numbers, and the commands. Without --write, nothing
    is changed.

    Example: flatout agents --install . --write
    """
    from flatout.errors import UsageError
    from flatout.machine.snapshot import take_snapshot
    from flatout.report.agent_files import section_change, skill_change
    from flatout.report.agent_guide import guide_lines

    if install is None and (skill or write):
        raise UsageError(f"{'--skill' if skill else '--write'}: belongs to --install FOLDER, such as --install .")
    if install is not None and not install.is_dir():
        raise UsageError(f"--install {install}: there is no such folder; give that of the project")
    guide = "\n".join(guide_lines(take_snapshot(), (install or Path()).absolute()))
    if install is None:
        print(guide)
        return
    change = skill_change(install / SKILL, guide) if skill else section_change(install / AGENTS, guide)
    if not change.diff:
        print(f"{change.path}: as it should be")
    elif not write:
        print(change.diff, end="")
        print(f"Nothing was changed. To do it: flatout agents --install {install}{' --skill' * skill} --write")
    else:
        backup = change.write()
        print(f"{change.path}: written" + (f"; the one before is {backup}" if backup else ""))
