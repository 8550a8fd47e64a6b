"""The keys of a recipe that classifies images, and what they demand of each other.

Unknown keys are refused. Reading a YAML file into these models, with errors that point into it, is
:mod:`flatout.recipes.reading`; quantities derived from a recipe and the machine are in :mod:`flatout.recipes.resolved`.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from flatout.recipes.image_sections import Data, Folds, Images, Model, Training, check_loss_keys
from flatout.recipes.sections import Checkpoints, Logging, Optimizer, Schedule, Section, check_loop


class Recipe(Section):
    """A whole training."""

    task: Literal["image-classification"] = Field("image-classification", description="kind of pipeline")
    about: str = Field("", description="one line on what this recipe is for")
    data: Data = Field(default_factory=Data, description="where the images are")
    images: Images = Field(default_factory=Images, description="how they are decoded and augmented")
    model: Model = Field(default_factory=Model, description="the network")
    optimizer: Optimizer = Field(default_factory=Optimizer, description="the optimizer")
    schedule: Schedule = Field(default_factory=Schedule, description="the learning rate over time")
    training: Training = Field(default_factory=Training, description="the loop")
    folds: Folds | None = Field(None, description="cross-validation; null: one training")
    checkpoints: Checkpoints = Field(default_factory=Checkpoints, description="what is kept")
    logging: Logging = Field(default_factory=Logging, description="where metrics go")

    @model_validator(mode="after")
    def _consistent(self) -> Recipe:
        training = self.training
        if training.mixes and training.batch_size % 2:
            raise ValueError(f"training.batch_size: {training.batch_size} is odd: mixup and cutmix need pairs")
        check_loss_keys(training)
        if training.splits > 1 and (self.images.repeats > 1 or self.images.vertical_flip):
            key = "repeats" if self.images.repeats > 1 else "vertical_flip"
            raise ValueError(f"images.{key}: not with training.splits {training.splits}: leave one of them out")
        if self.data.keep_indices and self.data.classes is None:
            raise ValueError("data.keep_indices: no classes are drawn: set data.classes, or set it to false")
        check_loop(training, self.schedule)
        if self.data.format == "csv" and self.data.labels is None:
            raise ValueError("data.labels: null: data.format csv needs the table's file name under data.root")
        low, high = self.images.crop_scale
        if not 0 < low <= high:
            raise ValueError(
                f"images.crop_scale: {low} to {high} is no range: give a lowest above 0 and a highest not below it"
            )
        if self.images.crop_ratio[0] > self.images.crop_ratio[1]:
            raise ValueError("images.crop_ratio: the first must not be above the second")
        if self.training.early_stopping and self.data.validation is None and self.folds is None:
            raise ValueError("training.early_stopping: nothing to score without data.validation or folds")
        return self
