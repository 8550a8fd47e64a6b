"""The inside of a step: other threads, and overhead around operators."""

from __future__ import annotations

from flatout.predict.context import Context
from flatout.predict.pipeline import Change
from flatout.predict.step_changes import shorter_step
from flatout.remedies.proposal import IDENTICAL, NUMERICS, Proposal, remedy
from flatout.results import Cause, Gain

_SWITCH_US, _USUAL_SWITCH_US = 500, 5000  # Python's own
# Of the waits that were seen: what went, on four trainings whose thread was taken away.
_LIKELY, _WHOLE, _MOST = 1.6, 2.6, 0.9


@remedy(("interpreter_lock",), IDENTICAL, risk="medium")
def thread_to_process(context: Context, cause: Cause) -> Proposal | None:
    """Run a thread that computes in Python as a process."""
    lock = context.run.lock
    if lock is None or isinstance(lock, str):
        return None
    share = min(lock.share, context.model.now.spare_share)
    # A process needs the same time on a core, which the training's threads may have to share with it.
    cores, used = context.run.cores, context.run.usage.main_cores
    room = cores is None or used is None or used + lock.share <= cores
    likely, least = (_LIKELY, 0.5) if room else (0.5, 0.0)
    spare = min(context.model.now.spare_share, _MOST)
    likely_share, most_share = (min(part * share, spare) for part in (likely, _WHOLE))
    if cause.share > lock.share:
        # It keeps a core from the training, which a process would do, too.
        taken = min(cause.share, spare)
        return Proposal(
            title=f"let {lock.holder} sleep between its turns, or leave it out",
            change=Change(step_removed_s=taken * context.model.now.total_s),
            gain=Gain(_factor(taken), _factor(least * share), _factor(max(taken, most_share))),
            how="time.sleep(0.1) in its loop, or a lower rate; or its work on another machine, as it needs a core",
            basis="measured: with fewer intra-op threads, which leave it a core, steps are this much shorter; waits "
            "for the lock come on top",
            memory_bytes=0,
        )
    return Proposal(
        title=f"move the work of {lock.holder} into a process",
        change=Change(step_removed_s=likely_share * context.model.now.total_s),
        # Part of the waits lies in taking over batches, which the model of means counts as the workers' slowness.
        gain=Gain(_factor(likely_share), _factor(least * share), _factor(most_share)),
        how="multiprocessing.Process or a DataLoader worker instead of threading.Thread; or array operations in place "
        "of its loops",
        basis="measured waits of the training thread for the interpreter lock; on four trainings, 1.4 to 2.6 times as "
        "much was gained, since waits between operators and in the backward pass are not seen",
        memory_bytes=None,
    )


@remedy(("interpreter_lock",), IDENTICAL, risk="low")
def sooner_switch(context: Context, cause: Cause) -> Proposal | None:
    """Have a thread that computes in Python give up the interpreter lock sooner."""
    now_us = context.run.process.switch_interval_us or _USUAL_SWITCH_US
    if context.run.lock is None or isinstance(context.run.lock, str) or now_us < 2 * _SWITCH_US:
        return None
    # At the most the waits become shorter as the interval does; a training that needs what the thread makes waits on.
    share = min(context.run.lock.share, context.model.now.spare_share)
    shorter = 1.0 - _SWITCH_US / now_us
    return Proposal(
        title=f"give up the interpreter lock after {_SWITCH_US} µs, not {now_us:,} µs",
        change=Change(step_removed_s=0.5 * shorter * share * context.model.now.total_s),
        gain=Gain(_factor(0.5 * shorter * share), 1.0, _factor(shorter * share)),
        how=f"sys.setswitchinterval({_SWITCH_US / 1e6:.4f}) before the training",
        settings={"switch_interval_us": _SWITCH_US},
        basis="measured waits of the training thread for the interpreter lock; half of them are assumed to become as "
        "much shorter as the interval; nothing is gained where the training waits for what the thread makes",
        memory_bytes=0,
    )


@remedy(("overhead_bound",), NUMERICS, risk="medium")
def fewer_operators(context: Context, cause: Cause) -> Proposal | None:
    """Replace a loop over small tensors by operators on large ones."""
    operators = context.run.operators
    # A compiler has joined what can be joined; on a GPU, CUDA graphs launch the rest.
    if isinstance(operators, str) or (context.run.process.compiled and operators.on_device):
        return None
    # Beside a GPU the host waits in the backward pass for the kernels of the forward one.
    lines = [line for line in context.run.lines("forward") if ".backward(" not in line.source]
    where = f" ({lines[0].file}:{lines[0].line})" if lines else ""
    half_s, most_s = 0.5 * operators.removable_overhead_s, 0.9 * operators.removable_overhead_s
    return Proposal(
        title=f"call fewer operators on larger tensors{where}",
        change=shorter_step(half_s),
        least=Change(),
        most=shorter_step(most_s),
        how="stack what the loop walks over, and compute it in one batched operator; or a module of torch.nn that does",
        basis="measured overhead of the traced steps; how many of the operators can be joined is not known",
        memory_bytes=None,
    )


@remedy(("wide_dtype",), NUMERICS, risk="medium")
def float32(context: Context, cause: Cause) -> Proposal | None:
    """Compute in 32-bit floats."""
    operators = context.run.operators
    if isinstance(operators, str):
        return None
    removed_s = cause.share * context.model.now.total_s
    return Proposal(
        title="compute in float32 (complex64)",
        change=shorter_step(removed_s),
        least=shorter_step(0.5 * removed_s),
        most=shorter_step(1.2 * removed_s),
        how="model.float(); batch.float(), or torch.from_numpy(array.astype('float32')); no set_default_dtype(float64)",
        settings={"float32": True},
        basis="measured time of operators on float64, and of a matrix product in both types on the CPU",
        memory_bytes=0,
    )


def _factor(share: float) -> float:
    """Throughput without this share of the time, over throughput now."""
    return 1.0 / max(1.0 - share, 0.01)
