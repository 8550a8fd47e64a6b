"""The keys of a recipe that segments volumes; loop, optimizer, schedule and logging are those of all recipes."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, PositiveInt, model_validator

from flatout.recipes.sections import (
    Logging,
    Loop,
    NotNegative,
    Optimizer,
    Positive,
    Schedule,
    Section,
    Share,
    Workers,
    check_loop,
)

Side = Annotated[int, Field(ge=4, le=1024)]
OFF = "probability; 0: off"


class VolumeData(Section):
    """Location of the staged volumes."""

    root: str | None = Field(None, description="folder of volumes that flatout stage wrote; --data sets it")
    validation: tuple[str, ...] | None = Field(
        None, description="ids of the volumes to validate on; null: validation_share of them, drawn by split_seed"
    )
    validation_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="share of the volumes to validate on, at least one"
    )
    split_seed: int = Field(42, description="seed that draws them")


class Patches(Section):
    """Patches: what the network sees at once."""

    size: tuple[Side, Side, Side] = Field((128, 128, 128), description="voxels (z, y, x)")
    per_epoch: PositiveInt = Field(500, description="patches of an epoch, of all processes; drawn at random")
    foreground: Share = Field(1 / 3, description="share of the patches whose middle is foreground")
    validation: PositiveInt = Field(
        64, description="patches to score after an epoch at most, spread over the validation volumes; always the same"
    )
    overlap: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.5, description="prediction of whole volumes: share of a patch that lies in the next one"
    )
    workers: Workers = Field("auto", description="reading threads; auto: one a usable core, at most 8")
    prefetch_batches: PositiveInt = Field(3, description="batches in flight at most")


class Augmentation(Section):
    """What is drawn for each patch, on the device; defaults are those of nnU-Net 2."""

    rotation: Share = Field(0.2, description=OFF)
    rotation_degrees: Annotated[float, Field(ge=0, le=180)] = Field(30.0, description="around each axis, to both sides")
    scaling: Share = Field(0.2, description=OFF)
    scaling_range: tuple[Positive, Positive] = Field((0.7, 1.4), description="source voxels for one of the patch")
    noise: Share = Field(0.1, description=OFF)
    noise_range: tuple[NotNegative, NotNegative] = Field(
        (0.0, 0.1), description="standard deviation, of normalised intensities"
    )
    blur: Share = Field(0.1, description=OFF)
    blur_range: tuple[Positive, Positive] = Field((0.5, 1.0), description="standard deviation, voxels")
    brightness: Share = Field(0.15, description=OFF)
    brightness_range: tuple[Positive, Positive] = Field((0.75, 1.25), description="factor")
    contrast: Share = Field(0.15, description=OFF)
    contrast_range: tuple[Positive, Positive] = Field((0.75, 1.25), description="factor of the distance to the mean")
    low_resolution: Share = Field(0.125, description=OFF)
    low_resolution_range: tuple[Positive, Annotated[float, Field(gt=0, le=1)]] = Field(
        (0.5, 1.0), description="share of the voxels that is kept along each axis"
    )
    inverted_gamma: Share = Field(0.1, description="probability, of the negative image; 0: off")
    gamma: Share = Field(0.3, description=OFF)
    gamma_range: tuple[Positive, Positive] = Field((0.7, 1.5), description="exponent")
    mirror: tuple[bool, bool, bool] = Field((True, True, True), description="z, y, x: each in half of the patches")


class Network(Section):
    """The network: a U-Net of dynamic-network-architectures."""

    kind: Literal["residual-encoder-unet", "plain-unet"] = Field("residual-encoder-unet", description="its encoder")
    features: tuple[PositiveInt, ...] = Field(
        (32, 64, 128, 256, 320, 320), description="of each stage; each halves the resolution of the one before"
    )
    blocks: tuple[PositiveInt, ...] = Field(
        (1, 3, 4, 6, 6, 6), description="of each stage of the encoder: residual blocks, or convolutions"
    )
    deep_supervision: bool = Field(True, description="the loss is taken at lower resolutions, too")
    gradient_checkpointing: bool = Field(False, description="recompute activations in backward: less memory, more time")


class VolumeTraining(Loop):
    """The loop, with what a segmentation is trained for."""

    epochs: PositiveInt = Field(1000, description="epochs of patches.per_epoch patches")
    batch_size: PositiveInt = Field(2, description="patches a step and process")
    dice: NotNegative = Field(1.0, description="weight of the loss's Dice part")
    cross_entropy: NotNegative = Field(1.0, description="weight of its other part")
    batch_dice: bool = Field(True, description="one Dice for a batch; false: the mean of its patches'")
    clip_gradients: NotNegative = Field(12.0, description="largest norm of the gradients; 0: off")


class VolumeOptimizer(Optimizer):
    """The optimizer; defaults are those of nnU-Net."""

    lr: Positive = Field(0.01, description="learning rate at lr_batch_size patches a step")
    lr_batch_size: PositiveInt = Field(2, description="the global batch that lr was chosen for")
    lr_scaling: Literal["linear", "sqrt", "off"] = Field("off", description="how lr follows the global batch")
    momentum: Share = Field(0.99, description="momentum, of those that have it")
    weight_decay: NotNegative = Field(3e-5, description="weight decay; not of biases and norms")


class VolumeSchedule(Schedule):
    """The learning rate over time; defaults are those of nnU-Net."""

    name: Literal["cosine", "tanh", "poly", "step", "multistep", "constant"] = Field(
        "poly", description="what follows the warm-up"
    )
    warmup_epochs: NotNegative = Field(0, description="epochs of linear warm-up")
    decay_rate: Positive = Field(0.9, description="step, multistep: factor of a decay; poly: the power")


class VolumeFolds(Section):
    """Cross-validation over whole volumes: no patch of a volume is in training and validation."""

    count: Annotated[int, Field(ge=2)] = Field(5, description="folds")
    seed: int = Field(42, description="seed of the split")
    file: str | None = Field(None, description="a saved split to use")


class VolumeCheckpoints(Section):
    """Checkpoints to keep."""

    metric: Literal["val/dice", "val/loss"] = Field("val/dice", description="what the best are chosen by")
    keep: PositiveInt = Field(1, description="so many of the best, beside the last")
    every_steps: Annotated[int, Field(ge=0)] = Field(
        0, description="write last.ckpt within epochs, too, every so many steps; 0: no"
    )


class VolumeRecipe(Section):
    """A whole training that segments volumes."""

    task: Literal["volume-segmentation"] = Field("volume-segmentation", description="kind of pipeline")
    about: str = Field("", description="one line on what this recipe is for")
    data: VolumeData = Field(default_factory=VolumeData, description="where the volumes are")
    patches: Patches = Field(default_factory=Patches, description="what is read of them at once")
    augmentation: Augmentation = Field(default_factory=Augmentation, description="how patches are changed")
    network: Network = Field(default_factory=Network, description="the network")
    optimizer: VolumeOptimizer = Field(default_factory=VolumeOptimizer, description="the optimizer")
    schedule: VolumeSchedule = Field(default_factory=VolumeSchedule, description="the learning rate over time")
    training: VolumeTraining = Field(default_factory=VolumeTraining, description="the loop")
    folds: VolumeFolds | None = Field(None, description="cross-validation; null: one training")
    checkpoints: VolumeCheckpoints = Field(default_factory=VolumeCheckpoints, description="what is kept")
    logging: Logging = Field(default_factory=Logging, description="where metrics go")

    @model_validator(mode="after")
    def _consistent(self) -> VolumeRecipe:
        training, network = self.training, self.network
        check_loop(training, self.schedule)
        if len(network.features) != len(network.blocks):
            raise ValueError(
                f"network.blocks: {len(network.blocks)} numbers for {len(network.features)} stages "
                "(network.features): give one for each"
            )
        if len(network.features) < 2:
            raise ValueError("network.features: one stage is no U-Net: give two or more")
        if not training.dice and not training.cross_entropy:
            raise ValueError("training.dice: 0 with training.cross_entropy 0 leaves no loss: set one of them")
        if self.patches.per_epoch < training.batch_size:
            raise ValueError(
                f"patches.per_epoch: {self.patches.per_epoch} is less than a batch of {training.batch_size}: give more"
            )
        for name in ("scaling", "noise", "blur", "brightness", "contrast", "low_resolution", "gamma"):
            low, high = getattr(self.augmentation, f"{name}_range")
            if low > high:
                raise ValueError(f"augmentation.{name}_range: {low:g} is above {high:g}: give the lowest first")
        return self
