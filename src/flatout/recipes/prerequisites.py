"""Checks that packages and machine meet a recipe's needs, before any data is read."""

from __future__ import annotations

import difflib
import urllib.error
import urllib.request
from importlib.util import find_spec
from pathlib import Path

import torch

from flatout import extras
from flatout.errors import UsageError
from flatout.loader.sources.hub import SCHEME
from flatout.recipes.any_recipe import AnyRecipe
from flatout.recipes.objective import check_loss
from flatout.recipes.optimization import check_optimizer, check_schedule_known
from flatout.recipes.schema import Recipe

ANSWER_S = 5.0  # the hub's own client retries for most of a minute


def check_prerequisites(recipe: AnyRecipe) -> None:
    """Check that the model, optimizer, loggers and precision of a recipe are available here.

    Raises:
        UsageError: one is not; the message names what to install or set.
    """
    wanted = recipe.logging
    for key, package, asked, off in (
        ("tensorboard", "tensorboard", wanted.tensorboard, "false"),
        ("wandb", "wandb", wanted.wandb != "off", "off"),
        ("mlflow", "mlflow", wanted.mlflow, "null"),
    ):
        if asked and find_spec(package) is None:
            raise UsageError(f"logging.{key}: not installed: pip install {package}, or set it to {off}")
    if recipe.training.precision == "fp16" and not torch.cuda.is_available():
        raise UsageError("training.precision: fp16 needs a GPU, there is none: give auto, fp32 or bf16")
    check_optimizer(recipe.optimizer.name)
    check_schedule_known(recipe.schedule.name)
    if isinstance(recipe, Recipe):
        check_loss(recipe.training)
        check_model(recipe.model.name)
        check_weights(recipe.model.name, recipe.model.weights)
        if recipe.data.root is not None and recipe.data.root.startswith(SCHEME):
            extras.require("hub")
            check_hub_data(recipe.data.root)
    else:
        extras.require("volumes", ("dynamic_network_architectures", "google_crc32c", "zarr", "zstandard"))


def check_model(name: str) -> None:
    """Check that timm has a model.

    Raises:
        UsageError: there is none; the nearest names are given.
    """
    import timm

    if timm.is_model(name):
        return
    known = timm.list_models() + timm.list_pretrained()
    near = difflib.get_close_matches(name, known, 3, 0.5)
    hint = f"did you mean {', '.join(near)}?" if near else "timm.list_models() lists what there is"
    raise UsageError(f"model.name: timm has no model {name!r}: {hint}")


def check_weights(name: str, weights: str) -> None:
    """Check that the weights are a file, or that the place from which timm fetches them answers.

    Raises:
        UsageError: there is no such file, or no answer within a few seconds.
    """
    if weights not in ("random", "hub") and not Path(weights).is_file():
        raise UsageError(f"model.weights: {weights}: no such file: allowed are random, hub or a local file")
    if weights != "hub":
        return
    from timm.models import get_pretrained_cfg

    known = get_pretrained_cfg(name)
    if known is None or not known.has_weights:
        raise UsageError(f"model.weights: timm has no pretrained weights of {name}: give random or a local file")
    if not known.hf_hub_id:
        return
    silent = hub_is_silent(known.hf_hub_id, "model")
    if silent:
        raise UsageError(f"model.weights: the weights of {name} are {silent}: give a local file, or random")


def check_hub_data(address: str) -> None:
    """Check that a data set of the Hugging Face hub is in the cache, or that the hub answers.

    Raises:
        UsageError: no answer within a few seconds.
    """
    silent = hub_is_silent(address.removeprefix(SCHEME).rstrip("/"), "dataset")
    if silent:
        raise UsageError(f"data.root: {address}: is {silent}: give a folder that save_to_disk wrote")


def hub_is_silent(repository: str, kind: str) -> str:
    """Why a repository cannot be had, in words; empty if it is in the cache or the hub answers."""
    from huggingface_hub import constants
    from huggingface_hub.file_download import repo_folder_name

    if (Path(constants.HF_HUB_CACHE) / repo_folder_name(repo_id=repository, repo_type=kind)).is_dir():
        return ""
    try:
        urllib.request.urlopen(urllib.request.Request(constants.ENDPOINT, method="HEAD"), timeout=ANSWER_S).close()
    except urllib.error.HTTPError:
        pass  # it answers
    except OSError as error:
        reason = getattr(error, "reason", None) or error
        return f"not in the cache and {constants.ENDPOINT} does not answer ({reason})"
    return ""
