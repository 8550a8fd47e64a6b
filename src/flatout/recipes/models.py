"""Networks by their timm name, with weights from the recipe's source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from flatout.errors import UsageError
from flatout.recipes.data_config import fixed_size
from flatout.recipes.image_sections import Model
from flatout.recipes.prerequisites import check_model
from flatout.recipes.schema import Recipe

CHANNELS = 3


def build_model(recipe: Recipe, classes: int) -> nn.Module:
    """The network of a recipe.

    Args:
        recipe: its ``model`` section names the network.
        classes: outputs of the classifier.

    Raises:
        UsageError: timm has no such model, the model no such option, or the weights are not available.
    """
    import timm

    wanted = recipe.model
    options: dict[str, Any] = {**wanted.options, "num_classes": classes}
    if wanted.dropout is not None:
        options["drop_rate"] = wanted.dropout
    if wanted.drop_path is not None:
        options["drop_path_rate"] = wanted.drop_path
    check_model(wanted.name)
    if wanted.in_chans != CHANNELS:
        options["in_chans"] = wanted.in_chans
    if recipe.images.size is not None and fixed_size(wanted.name):
        options["img_size"] = recipe.images.size
    try:
        model: nn.Module = timm.create_model(wanted.name, pretrained=wanted.weights == "hub", **options)
    except TypeError as error:
        raise UsageError(f"model: {wanted.name} does not take what the recipe asks for: {_first(error)}") from None
    except Exception as error:
        if wanted.weights != "hub":
            raise UsageError(
                f"model: {wanted.name} cannot be made for images of {recipe.images.size} pixels: {_first(error)}"
            ) from None
        raise UsageError(
            f"model.weights: the weights of {wanted.name} could not be fetched ({_first(error)}): "
            "give a local file, or random"
        ) from None
    if wanted.weights not in ("random", "hub"):
        _load(model, Path(wanted.weights))
    _set_head(model, wanted)
    if wanted.gradient_checkpointing:
        switch: Any = getattr(model, "set_grad_checkpointing", None)
        if switch is None:
            raise UsageError(f"model.gradient_checkpointing: {wanted.name} cannot")
        switch(True)
    return model


def _set_head(model: Any, wanted: Model) -> None:
    """The classifier's first weights and bias.

    Raises:
        UsageError: it has no such tensor.
    """
    for key, value in (("head_scale", wanted.head_scale), ("head_bias", wanted.head_bias)):
        if value is None:
            continue
        head = model.get_classifier()
        weight, bias = getattr(head, "weight", None), getattr(head, "bias", None)
        if weight is None or bias is None:
            raise UsageError(f"model.{key}: the classifier of {wanted.name} has no weight and bias: set it to null")
        with torch.no_grad():
            if key == "head_scale":
                weight.mul_(value)
                bias.mul_(value)
            else:
                bias.fill_(value)


def without_weights(recipe: Recipe) -> Recipe:
    """The recipe without weights to fetch: the checkpoint contains them."""
    return recipe.model_copy(update={"model": recipe.model.model_copy(update={"weights": "random"})})


def _load(model: nn.Module, path: Path) -> None:
    """Load a local file; a classifier of another size is left as it was initialised."""
    if not path.is_file():
        raise UsageError(f"model.weights: {path}: no such file: allowed are random, hub or a local file")
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            state: dict[str, Any] = load_file(path)
        else:
            state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise UsageError(f"model.weights: {path}: not readable as weights: {_first(error)}") from None
    if not isinstance(state, dict):
        raise UsageError(f"model.weights: {path}: holds a {type(state).__name__}, not tensors by name")
    for wrapping in ("state_dict", "model"):
        if isinstance(state.get(wrapping), dict):
            state = state[wrapping]
    own = model.state_dict()
    fitting = {name: value for name, value in state.items() if name in own and own[name].shape == value.shape}
    missing = [name for name in own if name not in fitting]
    if len(missing) > max(4, len(own) // 10):
        raise UsageError(
            f"model.weights: {path}: {len(missing)} of {len(own)} tensors are missing or have another shape, "
            f"such as {missing[0]}: these are weights of another model"
        )
    model.load_state_dict(fitting, strict=False)


def count_parameters(model: nn.Module) -> int:
    """Number of trainable parameters."""
    return sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)


def _first(error: BaseException) -> str:
    return str(error).strip().splitlines()[0][:200] if str(error).strip() else type(error).__name__
