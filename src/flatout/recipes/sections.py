"""The sections of a recipe that do not depend on its task: optimizer, schedule, loop, checkpoints, loggers."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, NonNegativeInt, PositiveInt

from flatout.errors import UsageError
from flatout.units import parse_duration

Share = Annotated[float, Field(ge=0, le=1)]
Positive = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
CYCLIC = ("cosine", "tanh", "poly")  # schedules that may restart
STABLE = ("wsd", "rsqrt")  # with a decay at the end only
ANNEALED = (*CYCLIC, *STABLE)  # from the end of the warm-up to the end of the training


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
    layer_decay_least: Share = Field(0.0, description="the smallest share that layer_decay comes to")
    options: dict[str, Any] = Field(default_factory=dict, description="further arguments of the optimizer")


class Schedule(Section):
    """Learning-rate schedule: linear warm-up, then a schedule of timm by name."""

    name: Literal["cosine", "tanh", "poly", "wsd", "rsqrt", "step", "multistep", "constant"] = Field(
        "cosine", description="what follows the warm-up; wsd: constant, then a decay; rsqrt: 1/√t, then a decay"
    )
    warmup_epochs: NotNegative = Field(5, description="epochs of linear warm-up")
    warmup_lr_share: Share = Field(0.001, description="the first learning rate, as a share of the highest")
    decay_epochs: Positive = Field(30, description="step: epochs between two decays")
    decay_rate: Positive = Field(0.1, description="step, multistep: factor of a decay; poly: the power")
    milestones: tuple[NonNegativeInt, ...] = Field((30, 60, 80), description="multistep: epochs of the decays")
    decay_share: Annotated[float, Field(gt=0, lt=1)] = Field(
        0.2, description="wsd, rsqrt: the decay's share of the epochs after the warm-up"
    )
    cycles: Annotated[int, Field(ge=1, le=100)] = Field(
        1, description="cosine, tanh, poly: restarts at a high rate; all cycles fit into training.epochs"
    )
    cycle_growth: Annotated[float, Field(ge=1, le=10)] = Field(
        1.0, description="length of a cycle, of that of the one before"
    )
    cycle_decay: Annotated[float, Field(gt=0, le=1)] = Field(
        0.5, description="highest rate of a cycle, of that of the one before"
    )
    k_decay: Positive = Field(1.0, description="cosine, poly: above 1 the rate stays high for longer")
    cooldown_epochs: NotNegative = Field(0, description="epochs at the last rate at the end")
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
    clip_gradients: NotNegative = Field(0.0, description="limit of the gradients, see clip_mode; 0: off")
    clip_mode: Literal["norm", "value", "agc"] = Field(
        "norm",
        description="limit of the norm of all gradients, of each value, or of each unit's norm as a share of its "
        "weights' norm",
    )
    early_stopping: EarlyStopping | None = Field(None, description="null: train all epochs")
    max_time: Duration | None = Field(None, description='a deadline such as "11m": work is planned into it')
    oom_fallback: bool = Field(True, description="out of memory: go on with the next smaller batch")
    seed: Annotated[int, Field(ge=0, le=2**32 - 1)] = Field(0, description="seed of everything that is drawn")


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
    check_schedule(schedule)
    warmup, epochs = schedule.warmup_epochs, training.epochs
    if warmup >= epochs and warmup > 0:
        raise ValueError(
            f"schedule.warmup_epochs: {warmup:g} of {epochs} epochs (training.epochs) leave none at the full rate: "
            f"--set schedule.warmup_epochs={epochs / 10:g}, or train longer"
        )
    if schedule.cooldown_epochs and warmup + schedule.cooldown_epochs >= epochs:
        raise ValueError(
            f"schedule.cooldown_epochs: {schedule.cooldown_epochs:g} and a warm-up of {warmup:g} leave none of the "
            f"{epochs} epochs (training.epochs) between them: give fewer, or train longer"
        )


def check_schedule(schedule: Schedule) -> None:
    """Check that a schedule uses the keys that it is given.

    Raises:
        ValueError: a key belongs to other schedules.
    """
    for key, plain, users in (
        ("cycles", 1, CYCLIC),
        ("k_decay", 1.0, ("cosine", "poly")),
        ("cooldown_epochs", 0, ANNEALED),
    ):
        if getattr(schedule, key) != plain and schedule.name not in users:
            raise ValueError(
                f"schedule.{key}: belongs to {', '.join(users)}, not to {schedule.name}: leave it out, or change "
                "schedule.name"
            )
