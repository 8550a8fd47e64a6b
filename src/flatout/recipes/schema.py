"""The keys of a recipe: one frozen model per section, each key with its meaning and allowed values.

Unknown keys are refused. Reading a YAML file into these models, with errors that point into it, is
:mod:`flatout.recipes.reading`; quantities derived from a recipe and the machine are in :mod:`flatout.recipes.resolved`.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    NonNegativeInt,
    PositiveInt,
    model_validator,
)

from flatout.errors import UsageError
from flatout.units import parse_duration

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]


def _workers(value: object) -> object:
    if value == "auto" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise ValueError("give auto or a number from 1 on")


Workers = Annotated[int | str, BeforeValidator(_workers)]


def _duration(value: str) -> str:
    try:
        parse_duration(value, option="a deadline")
    except UsageError as error:
        raise ValueError(str(error)) from None
    return value


Duration = Annotated[str, AfterValidator(_duration)]


class Section(BaseModel):
    """A part of a recipe: frozen, and without unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Data(Section):
    """Location of the images and settings for reading them."""

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
    keep_indices: bool = Field(
        False, description="classes that are drawn keep their indices among all; the model has outputs for all"
    )
    class_map: str | None = Field(
        None, description="text file with one class name a line, in the order of the model's outputs; null: sorted"
    )
    bad_files: Literal["error", "skip"] = Field("error", description="what to do with an image that cannot be decoded")


class Images(Section):
    """From encoded bytes to a uint8 batch."""

    size: Annotated[int, Field(ge=8, le=4096)] | None = Field(
        None, description="side of the crop, pixels; null: the model's own in timm"
    )
    validation_crop: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="share of the short side that validation looks at; null: that of the weights, else 0.875"
    )
    crop_mode: Literal["center", "squash"] | None = Field(
        None,
        description="validation: the middle square, or all squashed to one; null: the weights' own, else center",
    )
    interpolation: Literal["bilinear", "bicubic"] | None = Field(
        None, description="resizing; null: that of the weights, else bilinear"
    )
    crop_scale: tuple[Share, Share] = Field((0.08, 1.0), description="area of the random crop, share of the image")
    crop_ratio: tuple[Positive, Positive] = Field((3 / 4, 4 / 3), description="aspect ratio of the random crop")
    flip: Share = Field(0.5, description="probability of a horizontal flip")
    vertical_flip: Share = Field(0.0, description="probability of a vertical flip")
    policy: Literal["none", "randaugment", "trivialaugment", "autoaugment"] = Field(
        "none", description="operations drawn for each image"
    )
    policy_magnitude: Annotated[int, Field(ge=0, le=30)] = Field(9, description="strength of randaugment, of 30")
    policy_operations: Annotated[int, Field(ge=1, le=8)] = Field(2, description="operations of randaugment an image")
    colour_jitter: Annotated[float, Field(ge=0, le=1)] = Field(
        0.0, description="brightness, contrast and saturation change by up to this share"
    )
    colour_jitter_probability: Share = Field(1.0, description="probability of the colour jitter")
    grey: Share = Field(0.0, description="probability of a grey image")
    blur: Share = Field(0.0, description="probability of a Gaussian blur, sigma 0.1 to 2 pixels")
    erasing: Share = Field(0.0, description="probability of random erasing")
    erasing_mode: Literal["const", "rand", "pixel"] = Field(
        "pixel", description="what erased pixels become: zero, one random colour, or noise"
    )
    erasing_count: PositiveInt = Field(1, description="rectangles that are erased at most, of an image")
    repeats: Annotated[int, Field(ge=1, le=16)] = Field(
        1, description="repeated augmentation: an image so many times in an epoch, of fewer images; 1: off"
    )
    mean: tuple[float, float, float] | None = Field(
        None, description="per channel, of values in 0..1; null: that of the weights, else ImageNet's"
    )
    std: tuple[Positive, Positive, Positive] | None = Field(
        None, description="per channel; null: that of the weights, else ImageNet's"
    )
    decoder: Literal["torchvision", "pillow", "nvjpeg", "dali"] = Field("torchvision", description="what decodes")
    scaled_decode: bool = Field(False, description="decode large photographs at a smaller scale; shifts pixels")
    backend: Literal["auto", "threads", "processes"] = Field("auto", description="auto measures both at the start")
    workers: Workers = Field("auto", description="decoding threads or processes")
    prefetch_batches: PositiveInt = Field(4, description="batches in flight at most")


class Model(Section):
    """The network, by its name in timm."""

    name: str = Field("resnet50", description="a model of timm, such as resnet50 or tf_efficientnet_b4.ns_jft_in1k")
    weights: str = Field("random", description="random, hub (timm's pretrained weights), or a local file")
    in_chans: Literal[1, 3] = Field(3, description="channels that the model sees; 1: images are made grey")
    dropout: Share | None = Field(None, description="dropout before the classifier; null: the model's own")
    drop_path: Share | None = Field(None, description="stochastic depth; null: the model's own")
    gradient_checkpointing: bool = Field(False, description="recompute activations in backward: less memory, more time")


class Optimizer(Section):
    """The optimizer and its learning rate."""

    name: str = Field("sgd", description="an optimizer of timm, such as sgd, adamw, lamb, lion or muon")
    lr: Positive = Field(0.5, description="learning rate at lr_batch_size samples a step")
    lr_batch_size: PositiveInt = Field(256, description="the global batch that lr was chosen for")
    lr_scaling: Literal["linear", "sqrt", "off"] = Field("linear", description="how lr follows the global batch")
    momentum: Share = Field(0.9, description="momentum, of those that have it")
    nesterov: bool = Field(True, description="SGD with Nesterov's momentum")
    betas: tuple[Share, Share] | None = Field(None, description="decay rates of Adam's kind; null: the optimizer's own")
    eps: Positive | None = Field(None, description="epsilon; null: the optimizer's own")
    weight_decay: NotNegative = Field(5e-5, description="weight decay; not of biases and norms")
    layer_decay: Annotated[float, Field(gt=0, le=1)] | None = Field(
        None, description="learning rate of a layer as a share of that of the layer after it; null: the same"
    )
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the optimizer")


class Schedule(Section):
    """Learning-rate schedule: linear warm-up, then a schedule of timm by name."""

    name: Literal["cosine", "tanh", "poly", "step", "multistep", "constant"] = Field(
        "cosine", description="what follows the warm-up"
    )
    warmup_epochs: NotNegative = Field(5, description="epochs of linear warm-up")
    warmup_lr_share: Share = Field(0.001, description="the first learning rate, as a share of the highest")
    decay_epochs: Positive = Field(30, description="step: epochs between two decays")
    decay_rate: Positive = Field(0.1, description="step, multistep: factor of a decay; poly: the power")
    milestones: tuple[NonNegativeInt, ...] = Field((30, 60, 80), description="multistep: epochs of the decays")
    final_lr_share: Share = Field(0.0, description="the last learning rate, as a share of the highest")


class EarlyStopping(Section):
    """Conditions for stopping before the last epoch."""

    patience: PositiveInt = Field(5, description="epochs without a better score")
    min_delta: NotNegative = Field(0.0, description="what counts as better")


class Loop(Section):
    """The loop, whatever is trained."""

    epochs: PositiveInt = Field(90, description="passes over the training data")
    batch_size: PositiveInt = Field(256, description="samples a step and process")
    validation_batch_size: PositiveInt | None = Field(None, description="samples a validation batch; null: batch_size")
    validate_every: PositiveInt = Field(1, description="epochs between validations; the last one is always scored")
    accumulate: PositiveInt = Field(1, description="batches a step: gradients are added up")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = Field(
        "auto", description="auto: bf16 where the GPU has it, fp16 on other GPUs, fp32 on a CPU"
    )
    tf32: bool = Field(True, description="TF32 products where the GPU has them")
    channels_last: bool = Field(True, description="memory format of samples and weights")
    compile: Literal["off", "default", "reduce-overhead", "max-autotune"] = Field(
        "off", description="torch.compile mode"
    )
    ema_decay: Annotated[float, Field(ge=0, lt=1)] = Field(0.0, description="of the weights' moving average; 0: off")
    ema_warmup: bool = Field(False, description="the average begins short, and grows to ema_decay")
    sync_batchnorm: bool = Field(False, description="batch statistics over all processes")
    clip_gradients: NotNegative = Field(0.0, description="largest norm of the gradients; 0: off")
    early_stopping: EarlyStopping | None = Field(None, description="null: train all epochs")
    max_time: Duration | None = Field(None, description='a deadline such as "11m": work is planned into it')
    oom_fallback: bool = Field(True, description="out of memory: go on with the next smaller batch")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(0, description="seed of everything that is drawn")


class Training(Loop):
    """The loop, with what an image classifier is trained for."""

    loss: Literal["cross-entropy", "bce"] = Field("cross-entropy", description="bce: binary, of each class")
    bce_threshold: Share | None = Field(None, description="bce: targets above it become 1, others 0; null: as they are")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="label smoothing")
    mixup: NotNegative = Field(0.0, description="mixup's alpha; 0: off")
    cutmix: NotNegative = Field(0.0, description="cutmix's alpha; 0: off. With both on, one of them is drawn")
    mix_probability: Share = Field(1.0, description="probability of mixup or cutmix")
    cutmix_share: Share = Field(0.5, description="probability of cutmix where both are on")
    mix_mode: Literal["batch", "pair", "elem"] = Field("batch", description="drawn once for a batch, pair or image")
    mix_off_epoch: NonNegativeInt | None = Field(None, description="no mixup and cutmix from here on; null: always")


class Folds(Section):
    """Cross-validation."""

    count: Annotated[int, Field(ge=2)] = Field(5, description="stratified folds of the training part")
    seed: int = Field(42, description="seed of the split")
    file: str | None = Field(None, description="a saved split to use")


class Checkpoints(Section):
    """Checkpoints to keep."""

    metric: Literal["val/acc1", "val/acc5", "val/loss"] = Field("val/acc1", description="what the best are chosen by")
    keep: PositiveInt = Field(1, description="so many of the best, beside the last")
    every_steps: NonNegativeInt = Field(0, description="write last.ckpt within epochs, too, every so many steps; 0: no")


class Logging(Section):
    """Loggers of the metrics; a CSV file is always written."""

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
        training = self.training
        mixes = training.mixup > 0 or training.cutmix > 0
        if mixes and training.batch_size % 2:
            raise ValueError(f"training.batch_size: {training.batch_size} is odd: mixup and cutmix need pairs")
        if training.bce_threshold is not None and training.loss != "bce":
            raise ValueError("training.bce_threshold: belongs to training.loss: bce, or set it to null")
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


def check_loop(training: Loop, schedule: Schedule) -> None:
    """Check keys of the loop and the schedule against each other.

    Raises:
        ValueError: they contradict each other.
    """
    if training.ema_warmup and not training.ema_decay:
        raise ValueError("training.ema_warmup: there is no average: set training.ema_decay, such as 0.9998")
    if training.validate_every > training.epochs:
        raise ValueError(
            f"training.validate_every: {training.validate_every} is more than the {training.epochs} epochs: "
            "give at most as many"
        )
    if list(schedule.milestones) != sorted(set(schedule.milestones)):
        raise ValueError(f"schedule.milestones: {list(schedule.milestones)}: give rising epochs")
    warmup, epochs = schedule.warmup_epochs, training.epochs
    if warmup >= epochs and warmup > 0:
        raise ValueError(
            f"schedule.warmup_epochs: {warmup:g} of {epochs} epochs (training.epochs) leave none at the full rate: "
            f"--set schedule.warmup_epochs={epochs / 10:g}, or train longer"
        )
