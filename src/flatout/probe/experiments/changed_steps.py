"""Steps after the measured window, in blocks: one thing changed in a block, nothing in the next.

What is timed is a step's own part: from the arrival of its batch to the next wait for one. Without a DataLoader it is
all of the step, from one optimizer step to the next (from one backward pass to the next where no optimizer steps).
The first step of a block does not count, unless steps are long: threads start in it, and caches fill. Nor does the
longest of several if it is far longer: it may hold the beginning of an epoch, or a line of a log.
"""

from typing import Any

import torch
from torch import is_grad_enabled

from .. import debugging, events, live_objects
from ..contract import HOOKS
from ..device_rates import finish_kernels
from ..inspection import repeated_work
from ..inspection.unneeded_work import UnneededWork
from ..recorder import REC, now
from . import doubled_input, model_layouts, step_timers
from .model_inputs import ModelInputs
from .step_changes import StepChanges
from .step_timers import STATE

# For all of them, and as planned, of the ten seconds after the window: the rates of the device take half a second. Less
# where batches are read: steps with kept ones come afterwards.
LIMIT_NS, PLANNED_NS = 9_500_000_000, 8_500_000_000
LIMIT_WITH_BATCHES_NS, PLANNED_WITH_BATCHES_NS = 5_300_000_000, 4_500_000_000
BLOCK_NS = 200_000_000
MOST_BLOCKS, LEAST_BLOCKS = 7, 4  # of each change
ALL_COUNT = 3  # steps of a block; of more, one does not count
FAR_LONGER = 2  # that takes this many times the mean
OVERDUE = 3  # a block that takes this many times its time is cut short
FAR_SLOWER = 1.5  # a change after which steps take this many times as long in two blocks is not tried again
LOOKED_AT = 3  # steps before the first block: they show what there is to change, and how long a step takes
LOOKING_NS = 3_000_000_000  # of long steps, as many as this holds, and one at least
LONG_NS = 100_000_000  # a step in which starting threads does not matter
LEAST_OWN = 0.1  # of a step: a training that mostly waits gains nothing from a faster step


class ChangedSteps:
    """The blocks, and the step that runs.

    Attributes:
        begun_ns: when they began.
        by_batches: a step begins with the arrival of a batch from a DataLoader.

    Args:
        ended: called with the reason why they end, or None, when they do.
    """

    def __init__(self, ended):
        self._ended = ended
        self.over = False
        debugging.note()
        self.begun_ns = now()
        # Of a training that reads most of its batches without a DataLoader, waits are no boundaries.
        self.by_batches = 8 * REC.iterations >= REC.backwards
        self.limit_ns = LIMIT_WITH_BATCHES_NS if self.by_batches else LIMIT_NS
        self.planned_ns = PLANNED_WITH_BATCHES_NS if self.by_batches else PLANNED_NS
        units = REC.iterations if self.by_batches else REC.optimizer_steps or REC.backwards
        self.step_ns = REC.step_ns(units)
        updates = max(REC.optimizer_steps, 1)
        self.unit = max(round(REC.iterations / updates), 1) if self.by_batches and REC.optimizer_steps else 1
        self.compiled = bool(REC.process.get("compiled"))
        self.noticed = debugging.on()  # here, inside a backward pass: some are on for a part of the step only
        self.hooks = step_timers.HookTimers()
        self.collector = step_timers.CollectorTimer()
        self.restorers = [self.collector.install()]
        self.work = UnneededWork(self.compiled)
        self.restorers.append(self.work.watch())
        self.inputs: Any = None if self.compiled else ModelInputs()
        if self.inputs is not None:
            self.restorers.append(self.inputs.watch())
        self.changes = StepChanges(self.compiled, self.hooks, self.work)
        if not self.compiled:
            self.restorers.append(debugging.count_distributions())
        self.blocks: Any = None  # what is changed in each of the remaining ones; None: the first steps are looked at
        self.change: Any = None  # in the present block
        self.applied: Any = None  # restores it
        self.repeated: Any = None  # looks at one step before the blocks
        repeated_work.skipped("the time after the window was over before a whole step was looked at")  # until one is
        self.because: Any = None  # why there are none
        self.computed = False  # the present step had a backward pass
        self.started_ns = 0  # of the present step's own part; 0: none
        self.unchanged_ns = 0.0  # of a step in the latest unchanged block
        self.far_slower: Any = set()  # changes after which steps took far longer in one block
        self.uncounted = int(self.step_ns < LONG_NS)  # steps at the beginning of each block
        # Where each optimizer's step is one, all that a training does takes as many as it has optimizers.
        looked_at = LOOKED_AT if self.by_batches else LOOKED_AT * min(max(len(live_objects.optimizers()), 1), 4)
        self._begin_block(min(max(int(LOOKING_NS / self.step_ns), 1), looked_at))

    def _begin_block(self, steps):
        self.left = steps
        self.skipped = not self.uncounted
        self.counted = self.own_ns = self.longest_ns = self.block_ns = 0

    def batch_awaited(self, iterator):
        """The training asks for its next batch."""
        if self.by_batches:
            self.step_ended()

    def batch_arrived(self, batch, got):
        """It has it; ``got`` is False at the end of the pass."""
        if self.by_batches and not got:
            self.pause()
        elif self.by_batches and is_grad_enabled():
            self.work.batch_arrived(batch)
            self.step_begins()

    def updated(self):
        """An optimizer has stepped."""
        if not self.by_batches:
            self.step_ended()
            if not self.over:
                self.step_begins()

    def backward_ended(self):
        """A backward pass has ended."""
        self.computed = True
        if not REC.optimizer_steps:
            self.updated()
        if not self.over and now() - self.begun_ns > self.limit_ns:
            limit = "no step ended within %.2g s: one takes %.2g s" % (self.limit_ns / 1e9, self.step_ns / 1e9)
            self._ended(None if self.blocks is not None else limit)

    # untested: only after a fault of the probe in the last steps
    def failed(self, because):
        """The probe failed."""
        self._ended(because)

    def step_begins(self):
        """The own part of a step begins."""
        repeated_work.leave()
        if self.change and self.applied is None:
            self.applied = self.changes.apply(self.change)
        if self.skipped and not self.counted:
            self.hooks.reset()
            self.collector.spent.ns = self.collector.spent.calls = 0
            self.block_ns = self.block_ns or now()
        self.computed = False
        STATE.counting = self.skipped
        if self.repeated is not None:
            self.repeated.begin()
        self.started_ns = now()

    def step_ended(self):
        """It has ended: this is the place to change something."""
        end = now()
        STATE.counting = False
        started_ns, self.started_ns = self.started_ns, 0
        if self.repeated is not None and started_ns:
            self.repeated.end(self.computed)
            if self.computed and (self.repeated.over or not self.repeated.left):
                self.repeated = None
                self._go_on(end)
            return
        if not started_ns or not self.computed:  # no step, but a validation
            return
        self.work.step_ended()
        if self.inputs is not None:
            self.inputs.step_ended()
        if not self.skipped:
            self.skipped = True
            finish_kernels()
            return
        self.counted += 1
        self.left -= 1
        self.longest_ns = max(self.longest_ns, end - started_ns)
        over = not self.left or end - self.block_ns - self.longest_ns > OVERDUE * BLOCK_NS
        if over:
            finish_kernels()
            end = now()
        self.own_ns += end - started_ns
        if over:
            self._block_ended(end)

    def pause(self):
        """An epoch ends, or the training: what follows is not changed. The block goes on with the next batch."""
        STATE.counting = False
        self.started_ns = 0
        self._undo()

    def restore(self):
        """Put everything back."""
        STATE.counting = False
        self._undo()
        for restore in self.restorers:
            restore()
        self.restorers = []
        self.over = True

    def _undo(self):
        if self.repeated is not None:
            self.repeated.end(False)
        repeated_work.leave()
        restore, self.applied = self.applied, None
        if restore is not None:
            restore()

    def _block_ended(self, end):
        self._undo()
        if self.blocks is None:
            self.because = self._plan(end)
            if self.because:
                self._record(end)  # hooks and changes need more steps, the collector's time does not
            if self.compiled:
                repeated_work.skipped("the model is compiled")
            elif self.step_ns >= repeated_work.LONGEST_STEP_NS:
                repeated_work.skipped("a step takes %.2g s, too long to look at every operator" % (self.step_ns / 1e9))
            else:
                self.repeated = repeated_work.RepeatedWork()
                return
        else:
            self._record(end)
            self._found_late(end)
        self._go_on(end)

    def _found_late(self, end):
        """Plan blocks for what showed only in the steps since: a network may be updated in every fifth of them.

        Where there is no room for them, up to half of the other blocks go.
        """
        late = [] if self.compiled or self.because else self.changes.found_late()
        for change in late:
            room = int((self.planned_ns - (end - self.begun_ns)) / ((self.length + self.uncounted) * self.step_ns))
            others = len(self.blocks)
            kept = max(min(others, room - 2 * LEAST_BLOCKS), (others + 1) // 2)
            kept += (others - kept) % 2  # the last one is an unchanged block
            count = min((room - kept) // 2, MOST_BLOCKS)
            if count >= LEAST_BLOCKS:
                self.blocks = [*self.blocks[:kept], *[change, None] * count]

    def _go_on(self, end):
        """Begin the next block, if there is one."""
        if self.because or not self.blocks or end - self.begun_ns > self.limit_ns:
            self._ended(self.because)
            return
        self.change = self.blocks.pop(0)
        self._begin_block(self.length)

    def _record(self, end):
        what = REC.names.text(self.change) if self.change else 0
        counted, own_ns = self.counted, self.own_ns
        if self._holds_one_more_thing():
            counted, own_ns = counted - 1, own_ns - self.longest_ns
        REC.emit(events.EXPERIMENT, self.block_ns, end, what, counted, own_ns)
        # What is summed over all steps is a part of all; a collection may be what makes the longest one long.
        part, collected = own_ns / self.own_ns, self.collector.spent
        calls = round(collected.calls * counted / self.counted)
        REC.emit(events.COLLECTION, self.block_ns, end, 0, int(part * collected.ns), calls)
        each_ns = own_ns / counted
        if not self.change:
            self.unchanged_ns = each_ns
        elif self.change == HOOKS:
            for spent in self.hooks.called():
                REC.emit(events.HOOK, self.block_ns, end, step_timers.site(spent.code), spent.ns, spent.calls)
        elif each_ns > FAR_SLOWER * self.unchanged_ns:
            self._was_far_slower()

    def _was_far_slower(self):
        """Try the present change once more, as another program may have had the cores; after a second time drop it."""
        if self.change not in self.far_slower:
            self.far_slower.add(self.change)
            return
        # With the unchanged block before each; after the last change there is one more.
        places = [place for place, change in enumerate(self.blocks) if change == self.change]
        dropped = {*places, *(place - 1 for place in places)}
        self.blocks = [change for place, change in enumerate(self.blocks) if place not in dropped]

    def _holds_one_more_thing(self):
        """Whether the longest step holds what the others do not.

        Not where it may be the one that updates the weights, or that waits for the kernels of those before it. Hooks
        are timed in all steps.
        """
        if self.counted <= ALL_COUNT or self.unit > 1 or self.change == HOOKS or torch.cuda.is_initialized():
            return False
        return self.longest_ns * self.counted > FAR_LONGER * self.own_ns

    def _measure_models(self):
        """Time the models alone: the blocks begin later by what that takes."""
        begun_ns = now()
        self.inputs.unwatch()
        calls = self.inputs.taken()
        if not self.by_batches:  # of batches that a DataLoader gives, whole steps are doubled later
            REC.save_process(doubled_input=doubled_input.measured([call for call, _ in calls], self.inputs.lacking))
        layouts = model_layouts.measured(calls, self.step_ns)
        if layouts:
            REC.save_process(model_layouts=layouts)
        self.begun_ns += now() - begun_ns if self.by_batches else 0

    def _plan(self, end):
        """Plan the blocks; returns the reason if there can be none."""
        if not self.compiled:
            self.restorers.pop()()  # distributions are counted
        if self.inputs is not None:
            self._measure_models()
        self.work.decide(hooked=bool(self.hooks.spent))
        debugging.note()
        own_ns = self.own_ns / self.counted
        # Single steps of a short window, the first update among them, may have taken long.
        self.step_ns = min(self.step_ns, (end - self.block_ns) / self.counted)
        if own_ns < LEAST_OWN * self.step_ns:
            return "the training mostly waits for batches"
        changes = self.changes.possible(self.noticed)
        # A step may have been slowed by what is not in every one of them: it is not shorter than its own part.
        step_ns = max(self.step_ns, own_ns)
        self.uncounted = int(step_ns < LONG_NS)
        while True:
            for count in range(MOST_BLOCKS, LEAST_BLOCKS - 1, -1):
                blocks = 2 * count * len(changes) + 1 if changes else count
                block_ns = min(BLOCK_NS, self.planned_ns / blocks)
                self.length = max(int(block_ns / step_ns - self.uncounted) // self.unit, 1) * self.unit
                if blocks * (self.length + self.uncounted) * step_ns <= self.planned_ns:
                    cycle = [part for change in changes for part in (None, change)]
                    self.blocks = [*(cycle * count), None] if changes else [None] * count
                    return None
            long = "a step takes %.2g s, too long to try more" % (step_ns / 1e9)
            if not changes:
                return long
            changes.pop()
            REC.save_process(experiments_skipped=long)
