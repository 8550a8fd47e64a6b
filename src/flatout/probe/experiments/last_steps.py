"""The last steps of a profile: the training gets kept batches, and never leaves its steps again.

A step whose batch is already there, while no worker computes, shows the most that any input could give. The same with
each batch joined to itself shows what of a step grows with the batch. Then the loader runs alone.

The training learns from the wrong batches here, so nothing may come of it. When it goes on to anything but the next
step - it raises an exception, opens a file to write that is no log, validates, ends its pass - and when all is
measured, its thread stays in the probe until flatout ends the process, which it does as soon as it is told.
"""

# untested: only in trainings that flatout ends, which save no coverage

import os
import signal
import sys
import threading
import time
from typing import Any

import torch
from torch import is_grad_enabled
from torch.utils.data import dataloader

from .. import events, memory_room
from ..batches import samples_in
from ..contract import DOUBLED, LOADER, REPLAYED, SINGLE, TRIMMED
from ..device_rates import finish_kernels
from ..kept_batches import NotDoubled, bytes_of, copied, doubled_batch
from ..padding.trimming import evidence_of, trimmed
from ..recorder import REC, now, quietly
from . import loader_alone
from .block_plan import BLOCK_NS, plan
from .changeable_files import changeable_file
from .leaving import Leaving

LIMIT_NS = 10_000_000_000  # for these, the steps with one thing changed and the rates of the device
LEAST_NS = 4_200_000_000
KEPT = 8  # batches, handed out in turn
PARTS = 4  # of the room for batches: kept ones, those doubled, which take two, and copies to hand out
KEEPING_NS = 500_000_000  # after this time fewer are enough
LEAST_KEPT = 2
FILLING_NS = 1_000_000_000  # until the workers have filled their queue
WAITED_NS = 4_000_000_000  # at most, for the end of a pass that has too few batches left
SPARE_NS = 700_000_000  # of the planned time: steps may take longer by then
OVERDUE = 2  # a block that takes this many times its time is cut short
MOST_SWITCHES = 4  # from one DataLoader to another, as one that validates with gradients
HELD_NS = 60_000_000_000
_ITERATORS = (dataloader._SingleProcessDataLoaderIter, dataloader._MultiProcessingDataLoaderIter)


def room_ns(before_ns):
    """Time for the last steps, after looks that took ``before_ns``."""
    return max(LIMIT_NS - before_ns, LEAST_NS)


def impossible(left_ns):
    """Why no batches can be kept in this time; None: they may."""
    step_ns = REC.step_ns(REC.iterations)
    if 8 * REC.iterations < REC.backwards:
        return "most steps take no batch of a DataLoader"
    if LEAST_KEPT * step_ns > left_ns:
        return "a step takes %.2g s, too long to wait for batches" % (step_ns / 1e9)
    return None


class LastSteps:
    """Keeps batches, then hands them out in blocks of steps.

    Args:
        ended: called with the reason if there are no such steps; the training goes on as ever.
        before_ns: that the steps with one thing changed and the rates of the device took.
    """

    def __init__(self, ended, before_ns):
        self._ended = ended
        self.over = False
        left_ns = room_ns(before_ns)
        self.deadline_ns = now() + left_ns
        self.found: Any = {"blocks": [], "skipped": {}}  # as the record has it
        self.leaving = Leaving(self._left)
        self.compiled = bool(REC.process.get("compiled"))
        updates = max(REC.optimizer_steps, 1)
        self.unit = max(round(REC.iterations / updates), 1) if REC.optimizer_steps else 1
        self.iterator: Any = None  # whose batches are kept
        self.waited_ns = 0  # for the next pass
        self.switches = 0  # to another iterator, within a pass
        self.arrived: Any = None  # a copy of the batch of the present step
        self.kept: Any = []
        self.own_ns: Any = []  # of the steps with kept batches, as they were kept
        self.first_ns = 0  # when the first one was kept
        self.since_first = 0  # steps that have ended since then
        self.batches: Any = {}  # what a block hands out -> its batches
        self.ready: Any = []  # copies to hand out
        self.taken = 0  # batches handed out
        self.blocks: Any = None  # those that remain; None: batches are still kept
        self.change: Any = None  # of the present block
        self.started_ns = 0  # of the present step's own part; 0: none
        self.computed = False  # the present step had a backward pass
        because = impossible(left_ns)
        if because is not None:
            self._give_up(because)
        elif not self.compiled:  # watching would have it compiled again
            self.leaving.watch(True)

    # --- told by the hooks ---

    def batch_awaited(self, iterator):
        """The training asks for its next batch."""
        if self.over:
            return
        self.leaving.look(sys._getframe())
        if self.blocks is None:
            self._keep(iterator)
        elif iterator is not self.iterator or not is_grad_enabled():
            self._left("it went on to other batches")
        else:
            self._step_ended()

    def batch_arrived(self, batch, got):
        """It has it; ``got`` is False at the end of the pass."""
        self.computed = False
        self.started_ns = 0
        if self.over or not is_grad_enabled():
            return
        if self.blocks is None:
            self._copy(batch, got)
        self.started_ns = now()

    def updated(self):
        """An optimizer has stepped: here, batches begin the steps."""

    def backward_ended(self):
        """A backward pass has ended."""
        self.computed = True
        if self.blocks is None and not self.over and now() > self.deadline_ns:
            self._give_up("too few batches arrived in the seconds that this may take")

    def failed(self, because):
        """The probe failed."""
        if self.blocks is None:
            self._give_up(because)
        else:
            self._left(because)

    # --- batches are kept ---

    def _keep(self, iterator):
        """Keep the batch of the step that has ended, and begin when there are enough."""
        if self.started_ns and self.computed and self.arrived is not None:
            self.own_ns.append(now() - self.started_ns)
            self.kept.append(self.arrived)
            del self.own_ns[:-KEPT], self.kept[:-KEPT]
            if self.first_ns:
                self.since_first += 1
            else:
                finish_kernels()
                self.first_ns = now()
        self.arrived = None
        if not is_grad_enabled():
            return None
        if iterator is not self.iterator:
            self._changed(iterator)
        if self.over or not self.kept:
            return None
        room = memory_room.for_copies() // max(*map(bytes_of, self.kept), 1)
        if room < PARTS:
            return self._give_up("a batch is too large to be kept")
        enough = KEPT if now() - self.first_ns < KEEPING_NS else LEAST_KEPT
        if len(self.kept) >= min(enough, room // PARTS):
            self._begin(room // PARTS)

    def _next_pass_comes(self):
        """Whether the next pass begins in time; once, the rest of a short one is waited for besides."""
        rest_ns = (_batches_left(self.iterator) or 0) * REC.step_ns(REC.iterations)
        if not self.waited_ns and rest_ns <= WAITED_NS:
            self.waited_ns = rest_ns
            self.deadline_ns += rest_ns
        return now() < self.deadline_ns - rest_ns - LEAST_NS // 2

    def _copy(self, batch, got):
        """Copy the batch of the step that begins."""
        if not got:
            self._forget(None)
        elif self.iterator is not None:
            try:
                self.arrived = copied(batch)
            except Exception as error:  # of the user's own types
                self._give_up("a batch cannot be copied: %s" % error)

    def _changed(self, iterator):
        """Another DataLoader is read, or another pass over it."""
        self.switches += self.iterator is not None
        self._forget(iterator)
        if type(iterator) not in _ITERATORS:
            self._give_up("batches come from a loader of another kind")
        elif self.switches > MOST_SWITCHES:
            self._give_up("a step takes batches of several DataLoaders")

    def _forget(self, iterator):
        self.iterator = iterator
        self.kept, self.own_ns, self.first_ns, self.since_first, self.arrived = [], [], 0, 0, None

    def _begin(self, copies):
        """Begin with the first block, if the pass has enough batches left; at most ``copies`` are made ahead."""
        step_ns = sorted(self.own_ns)[len(self.own_ns) // 2]
        if torch.cuda.is_initialized():  # the host may not wait for its kernels
            finish_kernels()
            step_ns = max(step_ns, (now() - self.first_ns) // max(self.since_first, 1))
        budget_ns = self.deadline_ns - now() - loader_alone.PLANNED_NS - SPARE_NS
        if not _queue_filled(self.iterator, 0):  # the workers keep up with the steps, or hold them up
            awaited = getattr(self.iterator, "_tasks_outstanding", 0)
            budget_ns -= min(awaited * REC.step_ns(REC.iterations), FILLING_NS)
        free = not self.compiled
        trimming = free and self._trim()
        planned = plan(step_ns, self.unit, _batches_left(self.iterator), budget_ns, free, trimming)
        if not planned.changes and planned.pass_ends and self._next_pass_comes():
            return self._forget(None)  # the next pass may do
        changeable = changeable_file()
        if changeable is not None:
            return self._give_up("%s is open to be changed in place" % changeable)
        # From here on the training gets no other batches, and is never left alone again.
        self.found["idle"] = _queue_filled(self.iterator, now() + FILLING_NS)
        self.found["kept"] = len(self.kept)
        self.found["samples"] = sum(map(samples_in, self.kept))
        self.blocks, self.length, self.copies = list(planned.changes), planned.length, copies
        self.uncounted_steps = planned.uncounted
        self.leaving.await_files(True)
        if not self.blocks:
            return self._left(planned.because)
        if DOUBLED not in self.blocks:
            self.found["skipped"][DOUBLED] = planned.because or "a compiled model would be compiled again"
        self.batches[REPLAYED] = self.batches[SINGLE] = self.kept
        self.iterator.__dict__["_next_data"] = self._hand_out
        self._begin_block()

    def _trim(self):
        """Trim the kept batches; False if not all of them end in padding."""
        evidence = evidence_of(REC.process.get("padding") or {})
        if evidence is None:
            return False
        try:
            self.batches[TRIMMED] = [trimmed(batch, evidence) for batch in self.kept]
        except Exception:  # of the user's own types
            return False
        return all(batch is not None for batch in self.batches[TRIMMED])

    # --- blocks ---

    def _begin_block(self):
        self.change = self.blocks.pop(0)
        self.uncounted = self.uncounted_steps
        self.counted = self.spent_ns = self.block_ns = 0
        because = self._prepare()
        if because is not None:
            self.found["skipped"][_concerned(self.change)] = because
            others = (SINGLE, TRIMMED) if self.change == DOUBLED and TRIMMED in self.blocks else ()
            self.blocks = [change for change in self.blocks if change in (REPLAYED, *others)]
            return self._next_block()
        batches = self.batches[self.change]
        ahead = min(self.length + self.uncounted, self.copies // (1 + (self.change == DOUBLED)))
        self.ready = [copied(batches[(self.taken + place) % len(batches)]) for place in reversed(range(ahead))]
        if torch.cuda.is_initialized():
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()

    def _prepare(self):
        """Watch, and double the batches; returns the reason if that cannot be done."""
        wanted = self.change != REPLAYED
        # Where it slows steps, replayed ones are not watched: nothing in them is new to the training.
        if not self.leaving.watch(wanted or (self.leaving.free and not self.compiled)) and wanted:
            return "another tool watches exceptions"
        self.leaving.look(sys._getframe())
        if self.change != DOUBLED or DOUBLED in self.batches:
            return None
        try:
            lacking = memory_room.lacking()
            if lacking is None:
                size = getattr(self.iterator._index_sampler, "batch_size", None)
                self.batches[DOUBLED] = [doubled_batch(batch, size) for batch in self.kept]
            return lacking
        except NotDoubled as error:
            return str(error)
        except Exception as error:  # no memory, or the memory is not known
            return "%s: %s" % (type(error).__name__, error)

    def _next_block(self):
        if self.blocks and now() < self.deadline_ns - loader_alone.PLANNED_NS:
            self._begin_block()
        elif self.blocks:
            self._left("the time was up after %d blocks" % len(self.found["blocks"]))
        else:
            self._hold()

    def _hand_out(self):
        """Stands for the iterator's own ``_next_data``."""
        self.iterator._num_yielded -= 1  # it counts its own batches
        try:
            batches = self.batches[self.change]
            batch = self.ready.pop() if self.ready else copied(batches[self.taken % len(batches)])
            self.taken += 1
            return batch
        except Exception as error:  # it must not reach the training
            self._left("a batch could not be copied: %s" % error)

    def _step_ended(self):
        end = now()
        started_ns, self.started_ns = self.started_ns, 0
        if not started_ns or not self.computed:
            return
        if self.uncounted:
            self.uncounted -= 1
            if not self.uncounted:
                finish_kernels()
                self.block_ns = now()
            return
        self.counted += 1
        over = self.counted >= self.length or end - self.block_ns > OVERDUE * BLOCK_NS
        if over:
            finish_kernels()
            end = now()
        self.spent_ns += end - started_ns
        if over:
            self.found["blocks"].append([self.change, self.counted, self.spent_ns])
            if torch.cuda.is_initialized():
                peaks = self.found.setdefault("peak_bytes", {})
                peaks[self.change] = max(peaks.get(self.change, 0), torch.cuda.max_memory_allocated())
            self._next_block()

    # --- the end ---

    def _give_up(self, because):
        """Nothing can be measured; the training goes on as ever until flatout ends it."""
        self.over = True
        self.leaving.watch(False)
        self._forget(None)
        self._ended(because)

    def _left(self, because):
        """The training leaves its steps, or they cannot go on; does not return."""
        self.found["skipped"].setdefault(_concerned(self.change), because)
        self._hold()

    def _hold(self):
        """Save all, run the loader alone, and keep this thread here; does not return."""
        if not self.over:
            self.over = True
            self._finish()
        until_ns = now() + HELD_NS
        _signals_end_it()
        while now() < until_ns:
            time.sleep(0.02)
        os._exit(1)  # flatout is gone

    @quietly
    def _finish(self):
        self.leaving.watch(False)
        self.leaving.await_files(False)  # data sets may write
        self.batches, self.ready = {}, []
        REC.save_process(last_steps=self.found)  # a loader may never answer
        try:
            self.iterator.__dict__.pop("_next_data", None)
            self.found.update(loader_alone.run(self.iterator))
        except loader_alone.TooFew as error:
            self.found["skipped"][LOADER] = str(error)
        except Exception as error:
            self.found["skipped"][LOADER] = "%s: %s" % (type(error).__name__, str(error)[:200])
        REC.save_process(last_steps=self.found)
        self.leaving.await_files(True)
        REC.flags |= events.REPLAYED
        REC.publish()


def _concerned(change):
    """The part of the record that says why blocks with this change ended."""
    return {None: REPLAYED, SINGLE: DOUBLED}.get(change, change)


def _signals_end_it():
    """No handler of the script's runs any more, which might save weights; torch's own reports workers that ended."""
    if threading.current_thread() is threading.main_thread():
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)


def _batches_left(iterator):
    """Batches that remain of the pass; None if it has no known end."""
    if iterator._dataset_kind == 1:  # an iterable data set
        return None
    try:
        return len(iterator._index_sampler) - iterator._num_yielded
    except TypeError:
        return None


def _queue_filled(iterator, until_ns):
    """Wait until the workers have nothing to do; False if they still had at ``until_ns``."""
    awaited = getattr(iterator, "_tasks_outstanding", 0)
    while awaited and iterator._data_queue.qsize() < awaited:
        if now() > until_ns:
            return False
        time.sleep(0.005)
    return True
