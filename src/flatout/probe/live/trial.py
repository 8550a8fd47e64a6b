"""A live trial: the settings of a running training switched in blocks of steps, as a plan in the run folder says.

Its candidates are tried one after the other, in pairs of blocks without and with each: ``plan["order"]`` holds 0 and 1
for the blocks of a candidate, of which the last ones are left out once its pairs decide. One that gains stays for the
candidates after it. What counts of a block begins when the queue of the new settings is in its steady state, and stops
where a pass ends or another loader is read (a validation). Where a pass is shorter than a block, settings change
between passes, and whole passes count.

A fault of this ends the trial, with its reason in the process's record, and never the training.
"""

import functools
import weakref
from typing import Any

from torch import is_grad_enabled

from .. import events
from ..identity import ByIdentity
from ..injections import switch_setting, took_effect
from ..injections.loader import ATTRIBUTES, set_on
from ..recorder import REC, now
from ..settings import combined, injected_by
from . import switch
from .blocks import GAIN, amount, verdict
from .plan import read_plan
from .seeds import Seeds

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
            self.fail(_described(error))
            return None

    return guarded


def _described(error):
    return "%s: %s" % (type(error).__name__, error)


class LiveTrial:
    """The trial of one process.

    Args:
        plan: ``candidates``: settings by name, in addition to those of the start; ``order``: 0 or 1 for each block of
            a candidate, without or with it; ``block_s``, ``least_batches``: of each block; ``turns``: least batches of
            it for each worker; ``look_s``: a shorter pass counts whole; ``pass_s``: longest pass to wait for where
            settings can only change between passes; ``threshold``: relative gain that counts.
    """

    def __init__(self, plan):
        self.candidates: Any = plan["candidates"]
        self.order: Any = plan["order"]
        self.threshold = plan["threshold"]
        self.variants: Any = [{}]  # settings in addition to those of the start; a new one for each change of them
        self.base = 0  # variant without the present candidate,
        self.changed = 0  # and with it
        self.gained: Any = []  # numbers of the candidates that gained
        self.refused: Any = {}  # number of a candidate -> why it was not measured
        self._pairs: Any = []  # (rate without, rate with) of the present candidate
        self._rates: Any = {}  # of the present pair
        self._block_amount = 0.0  # batches of the present block that count
        self._depth = 0  # batches in flight in the present queue
        self.block_ns = int(plan["block_s"] * 1e9)
        self.look_ns, self.pass_ns = int(plan["look_s"] * 1e9), int(plan["pass_s"] * 1e9)
        self.least, self.turns = plan["least_batches"], plan["turns"]
        self.over = False
        self.turn = -1  # block; -1: the training is looked at
        self.variant = 0
        self.by_pass = False  # settings change between passes
        self.lead: Any = None  # data set of the loader that the blocks are counted by
        self._training: Any = []  # data sets whose batches led to backward passes
        self._loaders: Any = ByIdentity()  # DataLoader -> [attributes that it had, variant]
        self._flags: Any = []  # functions that undo what was switched besides loaders
        self._seeds = Seeds()
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
        if self._same_loader(known[1]):
            known[1] = self.variant
        else:
            self._attempt(loader, lambda: self._set(loader))
            kept, loader.__dict__["_iterator"] = getattr(loader, "_iterator", None), None
            if kept is not None:
                switch.end(kept)
            self._pass_ns = now()

    def iterator_asked(self, loader):
        """``DataLoader.__iter__`` begins."""
        known = self._loaders.get(loader)
        self.pass_begins(loader)
        try:
            if self.turn >= 0 and self._trains(loader.dataset):
                self._seeds.begins(loader, known and known[0])
        except Exception as error:
            self.fail(_described(error))

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
            REC.save_process(live={**self._found(), "failed": because})
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
            ready = switch.ready(source)
            self._depth = switch.queue_of(source)[1]
            if self._counted is None:
                if self._settled(place, source, at):
                    self._counted = _Counted(at, ready)
                    self._note(at, ready)
                return
            self._note(at, ready)
            counted_ns = self._block_ns + at - self._counted.start
            least = max(self.least, self.turns * switch.queue_of(source)[0])
            if counted_ns >= self.block_ns and self._block_batches + self._counted.batches >= least:
                self._count()
                self._next_block(at)

    def _note(self, at, ready):
        self._last = (at, self._counted.batches, self._counted.samples, ready)

    def _look(self, iterator, place, at):
        """Wait whether the pass ends within a block's time; if not, blocks are made of steps."""
        of_loader = [self._of_loader(settings) for settings in self.candidates]
        why = switch.why_not(iterator) if any(of_loader) else None
        if why is None and all(of_loader) and all(set(settings) <= set(PASS_ONLY) for settings in of_loader):
            why = "%s takes effect only where a pass begins" % ", ".join(PASS_ONLY)
        if at - self._since_ns < (self.pass_ns if why else self.look_ns):
            return
        if why:
            self.fail("a pass takes longer than %.2g s, and %s" % (self.pass_ns / 1e9, why))
        else:
            self._next_block(at)

    def _settled(self, place, source, at):
        """True when the queue is in its steady state, or has had a block's time for it."""
        if place.variant != self.variant or (place.relay is not None and place.relay.draining):
            return False
        workers, depth = switch.queue_of(source)
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
            self._add(counted, end, samples, batches, ready)

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
        self._add(counted, end, counted.samples, counted.batches, 0)

    def _add(self, counted, end, samples, batches, ready):
        bits = events.block_bits(batches, counted.ready, ready)
        REC.emit(events.LIVE_BLOCK, counted.start, end, self.turn, samples, bits)
        self._block_ns += end - counted.start
        self._block_batches += batches
        self._block_amount += amount(batches, batches, counted.ready, ready, self._depth)

    def _next_block(self, at):
        self._undo_flags()
        self._note_rate()
        self.turn += 1
        if self.turn % len(self.order) == 0:
            self._next_candidate(self.turn // len(self.order))
            if self.over:
                return
        self.variant = self.changed if self.order[self.turn % len(self.order)] else self.base
        self._flags = [switch_setting(name, value) for name, value in self.variants[self.variant].items()]
        self._since_ns, self._delivered, self._settling = at, 0, True
        self._block_ns = self._block_batches = 0
        self._block_amount = 0.0

    def _note_rate(self):
        """The block is complete; after a pair of them, the candidate may be decided."""
        if self.turn < 0 or not self._block_ns:
            return
        place = self.turn % len(self.order)
        self._rates[self.order[place]] = self._block_amount / self._block_ns
        if place % 2:
            self._pairs.append((self._rates[0], self._rates[1]))
            if verdict(self._pairs, self.threshold) is not None:
                self.turn += len(self.order) - 1 - place

    def _next_candidate(self, number):
        before = number - 1
        if number and before not in self.refused:
            unused = [name for name in self.candidates[before] if not took_effect(name)]
            if unused:
                self.refused[before] = "%s: nothing took it in its blocks" % ", ".join(unused)
            elif verdict(self._pairs, self.threshold) == GAIN:
                self.gained.append(before)
                self.base = self.changed
        self._pairs, self._rates = [], {}
        if number >= len(self.candidates):
            self.over = True
            self._restore()
            REC.save_process(live=self._found())
            self._end()
            return
        self.variants.append(combined(self.variants[self.base], self.candidates[number]))
        self.changed = len(self.variants) - 1

    def _found(self):
        return {"passes": self.by_pass, "gained": self.gained, "refused": self.refused}

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

    def _attempt(self, loader, action):
        """Switch a loader; a candidate that it refuses is left out, and the one before it set again.

        Returns:
            What the action returns; None: it was refused.
        """
        try:
            return action()
        except Exception as error:
            if self.variant == self.base:
                raise
            number = self.turn // len(self.order)
            self.refused[number] = str(error) if isinstance(error, ValueError) else _described(error)
            self.turn = (number + 1) * len(self.order) - 1
            self._block_ns = 0
            self._next_block(now())
            if not self._same_loader(self._known(loader)[1]):
                self._set(loader)
            return None

    def _same_loader(self, variant):
        """True if a loader's settings are the same in a variant and in the present one."""
        return self._of_loader(self.variants[variant]) == self._of_loader(self.variants[self.variant])

    def _switch(self, iterator, place):
        if self._same_loader(place.variant):
            place.variant = self.variant
            return
        why = switch.why_not(iterator)
        if why:
            self.fail(why)
            return
        loader = place.loader
        if loader is None:
            self.fail("its DataLoader is gone")
            return
        if place.relay is None:
            place.relay = switch.Relay(iterator)

        def handed_over():
            if self._known(loader)[1] != self.variant:
                self._set(loader)
            return place.relay.switch(loader)

        new = self._attempt(loader, handed_over)
        if new is None:  # the candidate was refused
            if not self.over:
                self._switch(iterator, place)
            return
        place.variant = self.variant
        new.__dict__[_PLACE] = _Place(loader, self.variant)
        if getattr(loader, "_iterator", None) is not None or loader.persistent_workers:
            # The iterator of later passes, which its workers then serve.
            loader.__dict__["_iterator"] = new if loader.persistent_workers else None

    @staticmethod
    def _of_loader(settings):
        return {name: settings[name] for name in injected_by("loader") if name in settings}

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
    plan = read_plan(REC.run)
    if plan is None:
        return
    REC.live = trial = LiveTrial(plan)
    ranks = REC.process.get("world_size") or 1
    if ranks > 1:
        trial.fail("%d ranks have to stay in step" % ranks)
