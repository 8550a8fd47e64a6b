"""The sections of a recipe that classifies images: data, pixels, model, and what it is trained for."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from flatout.recipes.sections import Loop, NotNegative, Positive, Section, Share, Workers


class Data(Section):
    """Location of the images and settings for reading them."""

    root: str | None = Field(None, description="folder, mount or object-store address; --data sets it")
    train: str | None = Field("train", description="training part under root; null: all of root, for folds")
    validation: str | None = Field(
        "val", description="validation part under root; null: none, folds split the training part"
    )
    test: str | None = Field(None, description="images to predict, under root")
    format: Literal["auto", "folders", "csv", "shards", "packed", "hf"] = Field(
        "auto", description="class folders, a table of ids and labels, tar shards, the packed layout, or Hugging Face's"
    )
    labels: str | None = Field(None, description="CSV file under root, for format csv")
    id_column: str = Field("id", description="column of the CSV with the image's file name, its extension optional")
    label_column: str = Field("label", description="column of the CSV or data set with the class")
    image_column: str = Field("image", description="column of a Hugging Face data set with the image")
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
    policy: Literal["none", "randaugment", "trivialaugment", "autoaugment", "augmix", "threeaugment"] = Field(
        "none", description="operations drawn for each image"
    )
    policy_magnitude: Annotated[int, Field(ge=0, le=30)] = Field(9, description="strength of randaugment, of 30")
    policy_deviation: NotNegative = Field(
        0.0, description="standard deviation of randaugment's strength, for each operation"
    )
    policy_probability: Share = Field(1.0, description="probability of each operation of randaugment")
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
    head_scale: Positive | None = Field(None, description="factor of the classifier's first weights; null: as timm's")
    head_bias: float | None = Field(
        None, description="first bias of the classifier, for bce about -ln(classes); null: as timm's"
    )
    options: dict[str, Any] = Field(
        default_factory=dict, description="further arguments of the model, such as {global_pool: max}"
    )
    gradient_checkpointing: bool = Field(False, description="recompute activations in backward: less memory, more time")


class Training(Loop):
    """The loop, with what an image classifier is trained for."""

    loss: Literal["cross-entropy", "bce", "poly", "asymmetric", "jsd"] = Field(
        "cross-entropy",
        description="bce: binary, of each class; poly: Poly-1; asymmetric: ASL of one label; jsd: of training.splits",
    )
    splits: Annotated[int, Field(ge=1, le=8)] = Field(
        1, description="views of each image in a batch, so many times the images; the first is only cropped and flipped"
    )
    bce_threshold: Share | None = Field(None, description="bce: targets above it become 1, others 0; null: as they are")
    bce_sum: bool = Field(False, description="bce: the sum over the classes instead of their mean")
    bce_positive_weight: Positive | None = Field(None, description="bce: weight of the class that is there; null: 1")
    poly_epsilon: float = Field(2.0, description="poly: weight of its further term; 0: cross-entropy")
    label_smoothing: Annotated[float, Field(ge=0, lt=1)] = Field(0.1, description="label smoothing")
    mixup: NotNegative = Field(0.0, description="mixup's alpha; 0: off")
    cutmix: NotNegative = Field(0.0, description="cutmix's alpha; 0: off. With both on, one of them is drawn")
    cutmix_range: tuple[Share, Share] | None = Field(
        None, description="cutmix: sides of the box, shares of the image's; null: drawn by alpha"
    )
    mix_probability: Share = Field(1.0, description="probability of mixup or cutmix")
    cutmix_share: Share = Field(0.5, description="probability of cutmix where both are on")
    mix_mode: Literal["batch", "pair", "elem"] = Field("batch", description="drawn once for a batch, pair or image")
    mix_off_epoch: NonNegativeInt | None = Field(None, description="no mixup and cutmix from here on; null: always")

    @property
    def mixes(self) -> bool:
        """True if images are mixed."""
        return bool(self.mixup or self.cutmix or self.cutmix_range)


class Folds(Section):
    """Cross-validation."""

    count: Annotated[int, Field(ge=2)] = Field(5, description="stratified folds of the training part")
    seed: int = Field(42, description="seed of the split")
    file: str | None = Field(None, description="a saved split to use")


def check_loss_keys(training: Training) -> None:
    """Check that the loss uses the keys that it is given.

    Raises:
        ValueError: a key belongs to another loss, or contradicts it.
    """
    for key, plain, loss in (
        ("bce_threshold", None, "bce"),
        ("bce_sum", False, "bce"),
        ("bce_positive_weight", None, "bce"),
        ("poly_epsilon", 2.0, "poly"),
    ):
        value = getattr(training, key)
        if value != plain and training.loss != loss:
            raise ValueError(f"training.{key}: belongs to training.loss: {loss}: set that, or leave it out")
    if training.loss == "jsd" and training.splits == 1:
        raise ValueError("training.splits: 1: training.loss: jsd compares views of an image: give 3")
    if training.splits > 1 and training.mixes:
        raise ValueError(
            f"training.splits: {training.splits}: not with mixup and cutmix: turn them off, or set it to 1"
        )
    if training.loss == "asymmetric" and training.mixes:
        raise ValueError("training.loss: asymmetric takes no mixed targets: turn off mixup and cutmix, or take bce")
    if training.cutmix_range is not None and training.cutmix_range[0] >= training.cutmix_range[1]:
        low, high = training.cutmix_range
        raise ValueError(f"training.cutmix_range: {low} to {high} is no range: give the lower share first")
