"""``flatout predict``: probabilities of images by a trained run."""

from __future__ import annotations

import json as json_format
from pathlib import Path
from typing import Annotated

import typer


def predict(
    run: Annotated[
        Path, typer.Argument(help="Folder that `flatout train` wrote, or a checkpoint in it.", show_default=False)
    ],
    data: Annotated[str, typer.Option("--data", metavar="PLACE", help="A folder, packed set or store address.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="The table.")] = Path("submission.csv"),
    batch_size: Annotated[int | None, typer.Option("--batch-size", metavar="N", min=1, help="Images at once.")] = None,
    json: Annotated[bool, typer.Option("--json", help="What was done, as JSON on standard output.")] = False,
) -> None:
    """Write a table of class probabilities, one line an id.

    The classes come from the run, not from the folder. Of a run with folds the models' probabilities are averaged.

    Example: flatout predict .flatout/trainings/demo-1 --data test --output submission.csv
    """
    from flatout import extras

    extras.require("train")
    from flatout.recipes.datasets import open_test
    from flatout.recipes.predicting import find_trained, write_submission
    from flatout.recipes.predicting import predict as probabilities_of

    trained = find_trained(run)
    source = open_test(data)
    probabilities = probabilities_of(trained, source, batch_size=batch_size)
    write_submission(output, source, trained[0].classes, probabilities)
    if json:
        print(
            json_format.dumps(
                {"images": len(probabilities), "models": len(trained), "classes": len(trained[0].classes),
                 "output": str(output)}
            )
        )  # fmt: skip
    else:
        print(f"{len(probabilities):,} images, {len(trained)} model(s), {len(trained[0].classes)} classes: {output}")
