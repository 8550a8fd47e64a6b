"""A live trial: the settings of a running training switched in blocks of steps, as a plan in the run folder says.

``plan["order"]`` holds the variant of each block; variant 0 is the training as it was started. What counts of a block
begins when the queue of the new settings is in its steady state, and stops where a pass ends or another loader is read
(a validation). Where a pass is shorter than a block, settings change between passes, and whole passes count.

A fault of this ends the trial, with its reason in the process's record, and never the training.
"""

import functools
import json
import os
import weakref
from typing import Any

import torch
from torch import is_grad_enabled

from . import events, live_switch
from .contract import LIVE_PLAN
from .identity import ByIdentity
from .injections import backends
from .injections.loader import ATTRIBUTES, set_on
from .recorder import REC, now
from .settings import injected_by

_PLACE = "_flatout_live"  # on an iterator: its _Place
_MISSING = object()
PASS_ONLY = ("persistent_workers",)  # takes effect only where a pass begins


class _Place:
    """What is known of an iterator.

    Attributes:
        loader: that made it.
        variant: of the settings that it delivers with.
        relay: delivers in its place, after a switch.
        backwards: backward passes at its latest batch; None: no batch yet.
    """

    __slots__ = ("_held", "_loader", "backwards", "relay", "variant")

    def __init__(self, loader, variant):
        self._loader = weakref.ref(loader)
        # A loop holds the iterator only. A loader with workers that stay holds its iterator: no cycle.
        self._held = None if loader.persistent_workers else loader
        self.variant = variant
        self.relay: Any = None
        self.backwards: Any = None

    @property
    def loader(self):
        return self._loader()


class _Counted:
    """A part of a block that counts."""

    __slots__ = ("batches", "ready", "samples", "start")

    def __init__(self, start, ready):
        self.start, self.ready = start, ready
        self.samples = self.batches = 0


def _guarded(method):
    """A fault ends the trial, and never reaches the training."""

    @functools.wraps(method)
    def guarded(self, *args):
        if self.over:
            return None
        try:
            return method(self, *args)
        except Exception as error:
            self.fail("%s: %s" % (type(error).__name__, error))
            return None

    return guarded


class _Seeds:
    """Draws as many seeds of workers as the training's own settings would, so that its random numbers stay the same.

    An iterator draws one when it is made; workers that stay are served by one iterator for all passes.
    """

    def __init__(self):
        self._before: Any = ByIdentity()  # DataLoader whose generator is replaced -> its own
        self._replaced = 0

    def begins(self, loader, before):
        """An iterator for a pass is asked for.

        Args:
            loader: the DataLoader.
            before: its own settings; None: this is its first pass.
        """
        draws = _makes_iterators(loader.__dict__) or getattr(loader, "_iterator", None) is None
        drew = before is None or _makes_iterators(before)
        if drew and not draws:
            torch.empty((), dtype=torch.int64).random_(generator=loader.generator)
        elif draws and not drew:
            self._before[loader] = (loader.generator,)
            self._replaced += 1
            loader.__dict__["generator"] = own = torch.Generator()
            own.manual_seed((torch.initial_seed() + self._replaced * live_switch.SEED_STEP) % (1 << 63))

    def ended(self, loader):
        """It has been made, or is reset."""
        (own,) = self._before.get(loader) or (_MISSING,)
        if own is not _MISSING:
            loader.__dict__["generator"] = own
            self._before[loader] = None


def _makes_iterators(settings):
    """True if each pass has an iterator of its own."""
    return not (settings["persistent_workers"] and settings["num_workers"])


class LiveTrial:
    """The trial of one process.

    Args:
        plan: ``variants``: settings by name, in addition to those of the start; ``order``: the variant of each block;
            ``block_s``, ``least_batches``: of each block; ``pass_s``: longest pass to wait for where settings can only
            change between passes.
    """

    def __init__(self, plan):
        self.variants: Any = plan["variants"]
        self.order: Any = plan["order"]
        self.block_ns = int(plan["block_s"] * 1e9)
        self.pass_ns = int(plan["pass_s"] * 1e9)
        self.least = plan["least_batches"]
        self.over = False
        self.turn = -1  # block; -1: the training is looked at
        self.variant = 0
        self.by_pass = False  # settings change between passes
        self.lead: Any = None  # data set of the loader that the blocks are counted by
        self._training: Any = []  # data sets whose batches led to backward passes
        self._loaders: Any = ByIdentity()  # DataLoader -> [attributes that it had, variant]
        self._flags: Any = []  # functions that undo what was switched besides loaders
        self._seeds = _Seeds()
        self._since_ns = 0  # the warm-up began
        self._delivered = 0  # batches since then, with the wanted settings
        self._counted: Any = None  # the present part that counts
        self._last: Any = None  # when the training last asked the lead for a batch: (time, batches, samples, ready)
        self._block_ns = self._block_batches = 0  # of the present block
        self._pass_ns = 0  # the present pass of the lead began
        self._begun = False  # the present pass did in DataLoader.__iter__
        self._settling = True  # the present pass is the first with new settings

    # --- what the hooks of the loader tell ---

    @_guarded
    def made(self, iterator, loader):
        """A DataLoader has made an iterator."""
        if _PLACE not in iterator.__dict__:
            iterator.__dict__[_PLACE] = _Place(loader, self._known(loader)[1])

    @_guarded
    def pass_begins(self, loader):
        """A pass begins: its iterator is made next."""
        if not is_grad_enabled() or not self._trains(loader.dataset):
            return
        if loader.dataset is self.lead:
            if self.by_pass:
                self._between_passes()
                self._begun = True
            self._pass_ns = now()
        known = self._known(loader)
        if known[1] != self.variant:
            self._set(loader)
            kept, loader.__dict__["_iterator"] = getattr(loader, "_iterator", None), None
            if kept is not None:
                live_switch.end(kept)
            self._pass_ns = now()

    def iterator_asked(self, loader):
        """``DataLoader.__iter__`` begins."""
        known = self._loaders.get(loader)
        self.pass_begins(loader)
        try:
            if self.turn >= 0 and self._trains(loader.dataset):
                self._seeds.begins(loader, known and known[0])
        except Exception as error:
            self.fail("%s: %s" % (type(error).__name__, error))

    def iterator_given(self, loader):
        """It has ended."""
        self._seeds.ended(loader)

    @_guarded
    def awaited(self, iterator):
        """The training asks for a batch."""
        place = iterator.__dict__.get(_PLACE)
        if place is None:
            return
        data = iterator._dataset
        if place.backwards is not None and REC.backwards > place.backwards and not self._trains(data):
            self._training.append(data)
        if not self._trains(data) or not is_grad_enabled():
            if self.lead is not None and not self.by_pass:
                self._interrupted()
            return
        if self.lead is None:
            self.lead = data
            self._since_ns = self._pass_ns = now()
        if data is self.lead:
            self._step(iterator, place)
        if place.variant != self.variant and not self.by_pass and not self.over:
            self._switch(iterator, place)

    def source(self, iterator):
        """The iterator that makes the batches of this one."""
        place = iterator.__dict__.get(_PLACE)
        return iterator if place is None or place.relay is None else place.relay.source

    @_guarded
    def arrived(self, iterator, samples):
        """It has one."""
        place = iterator.__dict__.get(_PLACE)
        if place is None:
            return
        place.backwards = REC.backwards
        if iterator._dataset is not self.lead:
            return
        if place.variant == self.variant and not (place.relay is not None and place.relay.draining):
            self._delivered += 1
        if self._counted is not None:
            self._counted.batches += 1
            self._counted.samples += samples

    @_guarded
    def pass_ended(self, iterator):
        """There is none: the pass is over."""
        place = iterator.__dict__.get(_PLACE)
        if place is None or iterator._dataset is not self.lead:
            return
        place.backwards = None
        if self.turn < 0:
            self.by_pass = True
        elif self.by_pass and not self._begun:
            self.fail("its passes do not begin in DataLoader.__iter__")
        elif self.by_pass:
            self._count_pass(now())
            self._begun = False
        else:
            self._interrupted()

    def fail(self, because):
        """End the trial; the training goes on with the settings of its start where its next pass begins."""
        if self.over:
            return
        self.over = True
        try:
            self._restore()
            REC.save_process(live={"passes": self.by_pass, "failed": because})
        except Exception:
            pass
        self._end()

    # --- blocks ---

    def _step(self, iterator, place):
        at = now()
        if self.turn < 0:
            self._look(iterator, place, at)
        elif self.by_pass:
            if self._counted is None:
                self._counted = _Counted(self._pass_ns, 0)
            self._note(at, 0)
        else:
            source = place.relay.source if place.relay is not None else iterator
            ready = live_switch.ready(source)
            if self._counted is None:
                if self._settled(place, source, at):
                    self._counted = _Counted(at, ready)
                    self._note(at, ready)
                return
            self._note(at, ready)
            counted_ns = self._block_ns + at - self._counted.start
            if counted_ns >= self.block_ns and self._block_batches + self._counted.batches >= self.least:
                self._count()
                self._next_block(at)

    def _note(self, at, ready):
        self._last = (at, self._counted.batches, self._counted.samples, ready)

    def _look(self, iterator, place, at):
        """Wait whether the pass ends within a block's time; if not, blocks are made of steps."""
        why = live_switch.why_not(iterator)
        if why is None and all(set(settings) <= set(PASS_ONLY) for settings in self.variants[1:]):
            why = "%s takes effect only where a pass begins" % ", ".join(PASS_ONLY)
        if at - self._since_ns < (self.pass_ns if why else self.block_ns):
            return
        if why:
            self.fail("a pass takes longer than %.2g s, and %s" % (self.pass_ns / 1e9, why))
        else:
            self._next_block(at)

    def _settled(self, place, source, at):
        """True when the queue is in its steady state, or has had a block's time for it."""
        if place.variant != self.variant or (place.relay is not None and place.relay.draining):
            return False
        workers, depth = live_switch.queue_of(source)
        if self._delivered >= 2 * depth:
            return True
        return self._delivered > workers and at - self._since_ns >= self.block_ns

    def _interrupted(self):
        """A validation or the end of a pass: what counts stops at the latest step, and the queue settles anew."""
        self._count()
        self._delivered, self._since_ns = 0, now()

    def _count(self):
        counted, self._counted = self._counted, None
        if counted is None or self._last is None:
            return
        end, batches, samples, ready = self._last
        if batches:
            bits = events.block_bits(batches, counted.ready, ready)
            REC.emit(events.LIVE_BLOCK, counted.start, end, self.turn, samples, bits)
            self._block_ns += end - counted.start
            self._block_batches += batches

    def _between_passes(self):
        if self._counted is not None and self._last is not None:  # the pass ended before its last batch
            self._count_pass(self._last[0])
        if self.turn < 0 or (self._block_ns >= self.block_ns and self._block_batches >= self.least):
            self._next_block(now())

    def _count_pass(self, end):
        counted, self._counted = self._counted, None
        if counted is None:
            return
        if self._settling:  # workers that stay start in the first pass, and the new settings fill their queue
            self._settling = False
            return
        REC.emit(events.LIVE_BLOCK, counted.start, end, self.turn, counted.samples, events.block_bits(counted.batches))
        self._block_ns += end - counted.start
        self._block_batches += counted.batches

    def _next_block(self, at):
        self.turn += 1
        self._undo_flags()
        if self.turn >= len(self.order):
            self.over = True
            self._restore()
            REC.save_process(live={"passes": self.by_pass})
            self._end()
            return
        self.variant = self.order[self.turn]
        self._flags = [backends.switch(name, value) for name, value in self._part("backends").items()]
        self._since_ns, self._delivered, self._settling = at, 0, True
        self._block_ns = self._block_batches = 0

    def _end(self):
        REC.flags |= events.SWITCHED

    # --- settings ---

    def _trains(self, data):
        return any(data is other for other in self._training)

    def _known(self, loader):
        known = self._loaders.get(loader)
        if known is None:
            before = {name: loader.__dict__.get(name, _MISSING) for name in ATTRIBUTES}
            known = self._loaders[loader] = [before, 0]
        return known

    def _set(self, loader):
        """Give a loader the settings of the present variant.

        Raises:
            ValueError: one of them is refused.
        """
        known = self._known(loader)
        for name, value in known[0].items():
            if value is _MISSING:
                loader.__dict__.pop(name, None)
            else:
                loader.__dict__[name] = value
        known[1] = self.variant
        for name, why in set_on(loader, self.variants[self.variant]).items():
            if why:
                raise ValueError("%s: %s" % (name, why))

    def _switch(self, iterator, place):
        if self._part("loader") == self._part("loader", place.variant):
            place.variant = self.variant
            return
        why = live_switch.why_not(iterator)
        if why:
            self.fail(why)
            return
        loader = place.loader
        if loader is None:
            self.fail("its DataLoader is gone")
            return
        if self._known(loader)[1] != self.variant:
            self._set(loader)
        if place.relay is None:
            place.relay = live_switch.Relay(iterator)
        new = place.relay.switch(loader)
        place.variant = self.variant
        new.__dict__[_PLACE] = _Place(loader, self.variant)
        if getattr(loader, "_iterator", None) is not None or loader.persistent_workers:
            # The iterator of later passes, which its workers then serve.
            loader.__dict__["_iterator"] = new if loader.persistent_workers else None

    def _part(self, injector, variant=None):
        """The settings of a variant, or of the present one, that a module of ``injections`` sets."""
        settings = self.variants[self.variant if variant is None else variant]
        return {name: settings[name] for name in injected_by(injector) if name in settings}

    def _undo_flags(self):
        flags, self._flags = self._flags, []
        for undo in flags:
            undo()

    def _restore(self):
        """Give all loaders their own settings back, for their next passes."""
        self.variant = 0
        self._undo_flags()
        for loader in self._loaders:
            if self._loaders[loader][1]:
                self._set(loader)
                loader.__dict__["_iterator"] = None  # which delivers with other settings, at most to the end of a pass


def begin_if_planned():
    """Begin the trial that the run folder holds a plan of, if any."""
    path = os.path.join(REC.run, LIVE_PLAN)
    if not os.path.exists(path):
        return
    with open(path) as file:
        plan = json.load(file)
    REC.live = trial = LiveTrial(plan)
    ranks = REC.process.get("world_size") or 1
    if ranks > 1:
        trial.fail("%d ranks have to stay in step" % ranks)
