"""The image settings that a recipe leaves open, from timm's data configuration of the model's weights."""

from __future__ import annotations

from typing import Any

from flatout.recipes.prerequisites import check_model
from flatout.recipes.schema import Recipe

# Without weights there is nothing to match: use ImageNet's usual evaluation settings.
PLAIN = {
    "mean": (0.485, 0.456, 0.406),
    "std": (0.229, 0.224, 0.225),
    "interpolation": "bilinear",
    "validation_crop": 0.875,
    "crop_mode": "center",
}


def resolve_images(recipe: Recipe) -> tuple[Recipe, str]:
    """The recipe with nothing left open in its ``images`` section, and a line that names the source of the values.

    Raises:
        UsageError: timm has no such model.
    """
    from timm.data import resolve_data_config
    from timm.models import get_pretrained_cfg

    check_model(recipe.model.name)
    known = get_pretrained_cfg(recipe.model.name)
    config: dict[str, Any] = resolve_data_config(pretrained_cfg=known.to_dict() if known is not None else {})
    values = {**PLAIN, "size": config["input_size"][1]}
    pretrained = recipe.model.weights != "random"
    if pretrained:
        values |= {
            "mean": tuple(config["mean"]),
            "std": tuple(config["std"]),
            "interpolation": "bilinear" if config["interpolation"] == "bilinear" else "bicubic",
            "validation_crop": config["crop_pct"],
            "crop_mode": "squash" if config["crop_mode"] == "squash" else "center",
        }
    images = recipe.images
    open_keys = {key: value for key, value in values.items() if getattr(images, key) is None}
    resolved = recipe.model_copy(update={"images": images.model_copy(update=open_keys)})
    said = open_keys if pretrained else {key: value for key, value in open_keys.items() if key == "size"}
    shown = ", ".join(f"{key} {_short(value)}" for key, value in sorted(said.items()))
    why = "as the weights were trained" if pretrained else "as timm uses the model"
    return resolved, f"images: {shown}: {why}" if shown else ""


def fixed_size(name: str) -> bool:
    """True if timm builds the model for one image size only."""
    from timm.models import get_pretrained_cfg

    known = get_pretrained_cfg(name)
    return bool(known is not None and known.fixed_input_size)


def _short(value: object) -> str:
    return "(" + " ".join(f"{part:g}" for part in value) + ")" if isinstance(value, tuple) else str(value)
