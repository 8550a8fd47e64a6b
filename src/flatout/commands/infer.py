"""``flatout infer``: class probabilities of images by a trained run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from flatout.commands.options import AsJson
from flatout.units import counted

SkipBad = Annotated[
    bool | None,
    typer.Option(
        "--skip-bad/--stop-at-bad",
        help="Images that cannot be decoded get equal probabilities, or are an error. Default: as in the training.",
    ),
]


def infer(
    run: Annotated[
        Path,
        typer.Argument(
            metavar="RUN", help="Folder that `flatout train` wrote, or a checkpoint in it.", show_default=False
        ),
    ],
    data: Annotated[str, typer.Option("--data", metavar="PLACE", help="A folder, packed set or store address.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The table.")] = Path("submission.csv"),
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=1, help="Images per batch.")
    ] = None,
    skip_bad: SkipBad = None,
    mirrored: Annotated[bool, typer.Option("--mirrored", help="Average each image with its mirror image.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a table of class probabilities, one line per id.

    The classes come from the run, not from the folder. For a run with folds, the models' probabilities are
    averaged.

    Example: flatout infer .flatout/trainings/demo-1 --data test
    """
    from flatout import extras

    extras.require("train")
    from flatout.errors import CommandError, UnreadableImage, UsageError
    from flatout.recipes.datasets import open_test
    from flatout.recipes.predicting import find_trained, said_of_bad, write_submission
    from flatout.recipes.predicting import predict as probabilities_of

    trained = find_trained(run)
    source = open_test(data)
    if output.is_dir() or not output.parent.is_dir():
        raise UsageError(f"--output {output}: {'is a folder' if output.is_dir() else 'its folder does not exist'}")
    try:
        made = probabilities_of(trained, source, batch_size=batch_size, skip_bad=skip_bad, mirrored=mirrored)
    except UnreadableImage as error:
        raise CommandError(
            f"{error.where}: {error.reason}: repair or remove it, or give --skip-bad", exit_code=1
        ) from None
    write_submission(output, source, trained[0].classes, made.probabilities, trained[0].recipe.data.id_column)
    probabilities = made.probabilities
    if as_json:
        print(
            json.dumps(
                {"images": len(probabilities), "models": len(trained), "classes": len(trained[0].classes),
                 "undecodable": [image.where for image in made.bad], "output": str(output)}
            )
        )  # fmt: skip
    else:
        print(
            f"{len(probabilities):,} images, {counted(len(trained), 'model')}, "
            f"{len(trained[0].classes)} classes: {output}"
            f"{said_of_bad(made.bad)}"
        )
