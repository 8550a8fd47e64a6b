"""Options that several commands share, each declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

RUNS_DIR = Path(".flatout/runs")
FIXES_DIR = Path(".flatout/fixes")

Command = Annotated[
    list[str] | None,
    typer.Argument(metavar="-- COMMAND", help="The training command, just as you run it.", show_default=False),
]
RunsDir = Annotated[
    Path, typer.Option("--runs-dir", metavar="FOLDER", help="Where runs are recorded.", show_default=True)
]
FixesDir = Annotated[
    Path, typer.Option("--fixes-dir", metavar="FOLDER", help="Where fixes keep their journals.", show_default=True)
]


def seconds_option(default: str | None) -> Any:
    """``--seconds`` of a command that measures runs; ``default`` is what happens without it, in words."""
    said = "" if default is None else f" Default: {default}."
    return typer.Option(
        "--seconds",
        metavar="TIME",
        help=f"Measure for this long after the first step: 90, 90s, 5m.{said}",
        show_default=default is None,
    )


FIRST_STEP_WITHIN = typer.Option(
    "--first-step-within", metavar="TIME", help="Give up if no training step was seen by then."
)
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a GitHub-flavoured Markdown page.")]
AsHtml = Annotated[bool, typer.Option("--html", help="Write one HTML page that opens offline, and say where it is.")]
PageFile = Annotated[
    Path | None, typer.Option("--output", "-o", metavar="FILE", help="With --html: the name of the page.")
]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress.")]
Output = Annotated[
    Path | None,
    typer.Option("--output", "-o", metavar="FILE", help="Write the report there instead of to standard output."),
]
Force = Annotated[bool, typer.Option("--force", help="Overwrite FILE if it exists.")]

# Of a recipe.
RecipeName = Annotated[
    str,
    typer.Argument(
        metavar="RECIPE", help="A shipped recipe (`flatout recipes` lists them) or a YAML file.", show_default=False
    ),
]
Data = Annotated[str | None, typer.Option("--data", metavar="FOLDER", help="Where the images are.")]
RecipeSettings = Annotated[
    list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Any key of the recipe; may be repeated.")
]

Live = Annotated[bool, typer.Option("--live", help="Serve a page that shows the run while it goes on; see `watch`.")]
