"""What a recipe says: one frozen model a section, each key with its meaning and its allowed values.

Unknown keys are refused. Reading a YAML file into these models, with errors that point into it, is
:mod:`flatout.recipes.reading`; what follows from a recipe and the machine is :mod:`flatout.recipes.derivation`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt, model_validator

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


class Section(BaseModel):
    """A part of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Data(Section):
    """Where the images are and how they are read."""

    root: str | None = Field(None, description="folder, mount or object-store address; --data sets it")
    train: str | None = Field("train", description="training part under root; null: all of root, for folds")
    validation: str | None = Field(
        "val", description="validation part under root; null: none, folds split the training part"
    )
    test: str | None = Field(None, description="images to predict, under root")
    format: Literal["auto", "folders", "csv", "shards", "packed"] = Field(
        "auto", description="class folders, a table of ids and labels, tar shards, or the packed layout"
    )
    labels: str | None = Field(None, description="CSV file under root, for format csv")
    id_column: str = Field("id", description="column of the CSV with the image's file name, its extension optional")
    label_column: str = Field("label", description="column of the CSV with the class name")
    classes: PositiveInt | None = Field(None, description="train on so many classes, drawn by subset_seed; null: all")
    subset_seed: int = Field(42, description="seed that draws the classes; the same for training and validation")
    bad_files: Literal["error", "skip"] = Field("error", description="what to do with an image that cannot be decoded")


class Images(Section):
    """From encoded bytes to a uint8 batch."""

    size: Annotated[int, Field(ge=8, le=4096)] = Field(224, description="side of the crop, pixels")
    validation_crop: Share = Field(0.875, description="share of the short side that validation looks at")
    crop_scale: tuple[Share, Share] = Field((0.08, 1.0), description="area of the random crop, share of the image")
    crop_ratio: tuple[Positive, Positive] = Field((3 / 4, 4 / 3), description="aspect ratio of the random crop")
    flip: Share = Field(0.5, description="probability of a horizontal flip")
    mean: tuple[float, float, float] = Field((0.485, 0.456, 0.406), description="per channel, of values in 0..1")
    std: tuple[Positive, Positive, Positive] = Field((0.229, 0.224, 0.225), description="per channel")
    decoder: Literal["torchvision", "pillow", "nvjpeg", "dali"] = Field("torchvision", description="what decodes")
    scaled_decode: bool = Field(False, description="decode large photographs at a smaller scale; shifts pixels")
    backend: Literal["auto", "threads", "processes"] = Field("auto", description="auto measures both at the start")
    workers: Literal["auto"] | PositiveInt = Field("auto", description="decoding threads or processes")
    prefetch_batches: PositiveInt = Field(4, description="batches in flight at most")


class Model(Section):
    """The network, by its name in timm."""

    name: str = Field("resnet50", description="a model of timm, such as resnet50 or tf_efficientnet_b4.ns_jft_in1k")
    weights: str = Field("random", description="random, hub (timm's pretrained weights), or a local file")
    dropout: Share | None = Field(None, description="dropout before the classifier; null: the model's own")
    drop_path: Share | None = Field(None, description="stochastic depth; null: the model's own")
    gradient_checkpointing: bool = Field(False, description="recompute activations in backward: less memory, more time")


class Optimizer(Section):
    """The optimizer and its learning rate."""

    name: Literal["sgd", "adamw"] = Field("sgd", description="optimizer")
    lr: Positive = Field(0.5, description="learning rate at lr_batch_size samples a step")
    lr_batch_size: PositiveInt = Field(256, description="the global batch that lr was chosen for")
    lr_scaling: Literal["linear", "sqrt", "off"] = Field("linear", description="how lr follows the global batch")
    momentum: Share = Field(0.9, description="SGD's momentum")
    nesterov: bool = Field(True, description="SGD with Nesterov's momentum")
    betas: tuple[Share, Share] = Field((0.9, 0.999), description="AdamW's decay rates")
    weight_decay: NotNegative = Field(5e-5, description="weight decay; not of biases and norms")


class Schedule(Section):
    """How the learning rate changes: linear warm-up, then a cosine."""

    warmup_epochs: NotNegative = Field(5, description="epochs of linear warm-up")
    final_lr_share: Share = Field(0.0, description="the last learning rate, as a share of the highest")


class EarlyStopping(Section):
    """When to stop before the last epoch."""

    patience: PositiveInt = Field(5, description="epochs without a better score")
    min_delta: NotNegative = Field(0.0, description="what counts as better")


class Training(Section):
    """The loop."""

    epochs: PositiveInt = Field(90, description="passes over the training data")
    batch_size: PositiveInt = Field(256, description="images a step and process")
    accumulate: PositiveInt = Field(1, description="batches a step: gradients are added up")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where the GPU has it, fp16 on other GPUs, fp32 on a CPU"
    )
    tf32: bool = Field(True, description="TF32 products where the GPU has them")
    channels_last: bool = Field(True, description="memory format of images and weights")
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = Field(
        "off", description="torch.compile mode"
    )
    label_smoothing: Share = Field(0.1, description="label smoothing")
    mixup: NotNegative = Field(0.0, description="mixup's alpha; 0: off")
    cutmix: NotNegative = Field(0.0, description="cutmix's alpha; 0: off. With both on, one of them is drawn a batch")
    ema_decay: Share = Field(0.0, description="decay of the weights' moving average; 0: off")
    clip_gradients: NotNegative = Field(0.0, description="largest norm of the gradients; 0: off")
    early_stopping: EarlyStopping | None = Field(None, description="null: train all epochs")
    max_time: str | None = Field(None, description='a deadline such as "11m": epochs and folds are planned into it')
    oom_fallback: bool = Field(True, description="out of memory: go on with the next smaller batch")
    seed: int = Field(0, description="seed of everything that is drawn")


class Folds(Section):
    """Cross-validation."""

    count: Annotated[int, Field(ge=2)] = Field(5, description="stratified folds of the training part")
    seed: int = Field(42, description="seed of the split")
    file: str | None = Field(None, description="a saved split to use")


class Checkpoints(Section):
    """What is kept."""

    metric: Literal["val/acc1", "val/acc5", "val/loss"] = Field("val/acc1", description="what the best are chosen by")
    keep: PositiveInt = Field(1, description="so many of the best, beside the last")
    every_steps: NonNegativeInt = Field(0, description="write last.ckpt within epochs, too, every so many steps; 0: no")


class Logging(Section):
    """Where metrics go; a CSV file always."""

    every_steps: PositiveInt = Field(50, description="steps between two readings of the loss")
    tensorboard: bool = Field(False, description="write TensorBoard events")
    wandb: Literal["off", "offline", "online"] = Field("off", description="Weights & Biases")
    wandb_project: str = Field("flatout", description="its project")
    wandb_name: str | None = Field(None, description="its run name; null: the run folder's")
    mlflow: str | None = Field(None, description="tracking address of MLflow; null: off")


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
        low, high = self.images.crop_scale
        if not 0 < low <= high:
            raise ValueError(
                f"images.crop_scale: {low} to {high} is no range: give a lowest above 0 and a highest not below it"
            )
        if self.images.crop_ratio[0] > self.images.crop_ratio[1]:
            raise ValueError("images.crop_ratio: the first must not be above the second")
        warmup, epochs = self.schedule.warmup_epochs, self.training.epochs
        if warmup >= epochs and warmup > 0:
            raise ValueError(
                f"schedule.warmup_epochs: {warmup:g} of {epochs} epochs leave none at the full rate: "
                f"--set schedule.warmup_epochs={epochs / 10:g}, or train longer"
            )
        if self.training.early_stopping and self.data.validation is None and self.folds is None:
            raise ValueError("training.early_stopping: nothing to score without data.validation or folds")
        return self
