"""``flatout infer``: class probabilities of images, or labels of volumes, by a trained run."""

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


Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="PATH",
        help="The table. Default: submission.csv. Volumes: a .zarr or .npy, or a folder of them: predictions.",
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
    output: Output = None,
    batch_size: Annotated[
        int | None, typer.Option("--batch-size", metavar="N", min=1, help="Images or patches per batch.")
    ] = None,
    skip_bad: SkipBad = None,
    mirrored: Annotated[bool, typer.Option("--mirrored", help="Average each image with its mirror images.")] = False,
    score: Annotated[
        bool, typer.Option("--score", help="Of staged volumes with labels: Dice, surface Dice, HD95, scores.json.")
    ] = False,
    force: Annotated[bool, typer.Option("--force", help="Of volumes: replace what has the name of an output.")] = False,
    as_json: AsJson = False,
) -> None:
    """Predict by a finished training: a table of classes, or volumes.

    The classes come from the run, not from the folder. For a run with folds, the models' probabilities are
    averaged. Labels of volumes are written plane by plane: after an interruption the same command goes on, and
    volumes that are complete stay as they are.

    Example: flatout infer .flatout/trainings/demo-1 --data test
    """
    from flatout import extras
    from flatout.errors import UsageError

    extras.require("train")
    from flatout.recipes.lean_start import import_lightning

    import_lightning()
    if _segments_volumes(run):
        _infer_volumes(run, Path(data), output or Path("predictions"), batch_size, mirrored, score, force, as_json)
        return
    if score:
        raise UsageError("--score: this run predicts classes of images, which have no labels here: leave it out")
    _infer_images(run, data, output or Path("submission.csv"), batch_size, skip_bad, mirrored, as_json)


def _infer_images(
    run: Path, data: str, output: Path, batch_size: int | None, skip_bad: bool | None, mirrored: bool, as_json: bool
) -> None:
    from flatout.errors import CommandError, UnreadableImage, UsageError
    from flatout.recipes.datasets import open_test
    from flatout.recipes.predicting import find_trained, said_of_bad, write_submission
    from flatout.recipes.predicting import predict as probabilities_of

    trained = find_trained(run)
    source = open_test(data, trained[0].recipe.data.image_column)
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


def _segments_volumes(run: Path) -> bool:
    from flatout.recipes.predicting import find_checkpoints
    from flatout.recipes.reading import FILE_NAME, read_any_recipe

    return read_any_recipe(str(find_checkpoints(run)[0].parent / FILE_NAME)).task == "volume-segmentation"


def _infer_volumes(
    run: Path, data: Path, output: Path, batch_size: int | None, mirrored: bool, score: bool, force: bool, as_json: bool
) -> None:
    from flatout.errors import UsageError
    from flatout.recipes.volume_inference import predict_all, volumes_to_predict
    from flatout.recipes.volume_predicting import load_segmenter
    from flatout.report.staging_progress import Show
    from flatout.volumes import open_volume, read_staged
    from flatout.volumes.staged import FILE as INDEX_FILE

    staged = read_staged(data) if (data / INDEX_FILE).is_file() else None
    if score and staged is None:
        raise UsageError(f"--score: {data} has no {INDEX_FILE}: give a folder that flatout stage --volumes wrote")
    if staged is None:
        open_volume(data)  # what is wrong with it comes first
    wanted = volumes_to_predict(data, staged, output)
    segmenter = load_segmenter(run, mirrored=mirrored)
    rows: list[dict[str, object]] = []
    with Show(quiet=as_json) as show:

        def progress(volume: Path, done: int, planes: int) -> None:
            show.state(lambda: f"{volume}: {done:,} of {planes:,} planes ({len(rows):,} of {len(wanted):,} volumes)")

        options = f"mirrored={mirrored}"
        for made in predict_all(segmenter, wanted, batch=batch_size, options=options, force=force, progress=progress):
            rows.append(vars(made) | {"volume": str(made.volume), "output": str(made.output)})
            if not as_json:
                went_on = f", of which {made.found_done:,} were done before" if made.found_done else ""
                print(f"{made.volume}: {made.planes:,} planes{went_on}: {made.output}", flush=True)
    found: dict[str, object] = {"volumes": rows, "models": len(segmenter.checkpoints), "classes": segmenter.classes}
    if score and staged is not None:
        from flatout.recipes.prediction_scores import score_predictions
        from flatout.report.prediction_scores import score_lines

        scored = score_predictions(staged, output, segmenter.classes, run)
        found |= {"scores": [vars(one) for one in scored.scores], "not_measured": scored.not_measured}
        if not as_json:
            print(score_lines(scored))
    if as_json:
        print(json.dumps(found))
