"""Functions that only report run in every n-th step that calls them; in between they return what they returned last.

The first backward pass shows that the training has begun: functions are looked up then, and a few times later. A
function that the training depends on is left alone: one with a backward pass in it, one that changes or keeps tensors,
whose result is differentiated, or that draws random numbers which cannot be drawn without it.
"""

import copy
import dis
import functools
import os
import sys
import threading
from typing import Any

import torch

from .. import in_place
from ..recorder import report_fault
from ..sites import PROBE_FOLDER
from ..wrap import is_compiling
from .named_functions import NamedFunction, find
from .side_effects import Draws, SideEffects, changes_learning

_LOOKED_UP = (1, 2, 5, 20)  # backward passes after which functions are looked up: some are made late
_WATCHED = 3  # calls whose effects are looked at; of further closures of the same code, one each
_DECORATORS = os.path.join("torch", "utils", "_contextlib.py")  # of torch.no_grad() and the like
_ALL_RUN = 2  # turns at the beginning: what a call does need not be the same each time


def install(injected, watch):
    """Patch ``torch.autograd.backward``, which all backward passes of a training go through."""
    if not injected.get("call_every"):
        return
    throttled = _ThrottledCalls(injected)
    injected.on_switch("call_every", throttled.switch)
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args, **kwargs):
        throttled.refuse_running("a backward pass runs in it")
        result = original(*args, **kwargs)
        throttled.stepped()
        return result

    torch.autograd.backward = backward


def _answered(function: Any, throttled):
    """Have the calls of a function answered; returns what undoes it.

    One that the probe times is changed already: there, a method of its class takes its place.

    Raises:
        in_place.NotInstrumented: its source is missing, or it is no method.
    """
    if not in_place.is_instrumented(function):
        in_place.instrument(function, throttled)
        return functools.partial(in_place.restore, function)
    *parents, name = function.__qualname__.split(".")
    owner: Any = functools.reduce(getattr, parents[1:], function.__globals__.get(parents[0])) if parents else None
    if not isinstance(owner, type) or id(vars(owner).get(name)) != id(function):
        raise in_place.NotInstrumented("%s is timed, and no method of a class" % function.__qualname__)

    @functools.wraps(function)
    def answered(*args, **kwargs):
        answer: Any = throttled(*args, **kwargs)
        return function(*args, **kwargs) if answer is None else answer[0]

    setattr(owner, name, answered)
    return functools.partial(setattr, owner, name, function)


class _Named(NamedFunction):
    """A function as the setting names it, with the objects that were found: closures are several.

    Attributes:
        every: its calls run in each so many steps; 1: in all.
        refused: it is left alone for good.
        throttled: the objects.
    """

    def __init__(self, name):
        super().__init__(name)
        self.every, self.refused = 1, False
        self.throttled = []


class _ThrottledCalls:
    """The functions of the setting, and the number of the step.

    Attributes:
        step: backward passes until now.
        thread: ident of the training thread.
    """

    def __init__(self, injected):
        self._injected = injected
        self._named = {}
        self._refusals = {}  # function -> why
        self._used = {}  # function -> file and line of the first call whose result the program uses
        injected.at_end.append(self._say_used)
        self.step, self.thread = 0, None
        self.switch(injected.get("call_every"))

    def switch(self, setting):
        """Call the functions of the setting less often from now on, and others as the script does; None: all."""
        for named in self._named.values():
            named.every = 1
        for text in setting.split(",") if setting else ():
            name, _, every = text.rpartition(":")
            named = self._named.setdefault(name, _Named(name))
            named.every = 1 if named.refused else int(every)
            for throttled in named.throttled:
                throttled.begin()
        if setting and self.step:
            self._injected.applied.pop("call_every", None)
            self._find(last=self.step >= _LOOKED_UP[-1])

    def stepped(self):
        """Count a backward pass, and look functions up after some of them."""
        self.step += 1
        self.thread = threading.get_ident()
        if self.step in _LOOKED_UP:
            self._find(last=self.step == _LOOKED_UP[-1])

    def _find(self, last):
        try:
            self._look_up(last)
        except Exception:
            report_fault("call_every")

    def _look_up(self, last):
        pending = [named for named in self._named.values() if not named.refused]
        for named, function in list(find(pending)):
            if any(function is one.function for one in named.throttled):
                continue
            throttled = _Throttled(self, named, function)
            try:
                throttled.undo = _answered(function, throttled)
                named.throttled.append(throttled)
            except in_place.NotInstrumented as error:
                self.refuse(named, str(error))
        for named in pending if last else ():
            if not named.throttled:
                self.refuse(named, named.missing)

    def refuse_running(self, why):
        """Leave the functions alone that run now."""
        for named in self._named.values():
            if any(throttled.running for throttled in named.throttled):
                self.refuse(named, why)

    def refuse(self, named, why):
        """Leave a function alone from now on, for the first reason that is found."""
        if named.refused:
            return
        for throttled in named.throttled:
            throttled.undo()
        named.throttled, named.every, named.refused = [], 1, True
        self._refusals[named.text] = why
        self._injected.refuse("call_every", "; ".join("%s: %s" % refusal for refusal in self._refusals.items()))

    def done(self, throttled, result):
        """Note that a call was left out, and given a result of before."""
        self._injected.done("call_every")
        text = throttled.named.text
        if result is not None and text not in self._used:
            self._used[text] = ""
            try:
                self._used[text] = _use(sys._getframe(2), throttled.function.__code__)
            except Exception:
                report_fault("call_every")

    def _say_used(self):
        """What the program does with results of before is not known."""
        used = {text: place for text, place in self._used.items() if place}
        return [
            "call_every: %s uses what %s returns, and got its last result in between: what follows it, as early "
            "stopping, a schedule or the choice of the best model, may differ" % (place, text)
            for text, place in used.items()
        ]


def _use(frame, code):
    """File and line of the call of a function, if its result is used; empty if it is dropped.

    Args:
        frame: of the function, or further in.
        code: of the function.
    """
    while frame is not None:
        found = frame.f_code
        passes_on = (
            found.co_filename.startswith(PROBE_FOLDER) or _is_of(found, code) or found.co_filename.endswith(_DECORATORS)
        )
        after = (one.opname for one in dis.get_instructions(found) if one.offset > frame.f_lasti)
        then = "" if passes_on else next(after, "")
        if then == "POP_TOP":
            return ""
        if not passes_on and then != "RETURN_VALUE":
            return "%s:%d" % (os.path.basename(found.co_filename), frame.f_lineno or 0)
        frame = frame.f_back
    return ""


def _is_of(found, code):
    """True for a function's code, also as the probe has changed it."""
    return (found.co_filename, found.co_name) == (code.co_filename, code.co_name)


class _Throttled:
    """Answers calls of one function.

    A step in which it is called is a turn. In the first two and every n-th turn its calls run; the calls of other turns
    are answered with the results of the last one that ran, in order. Of the first calls that run the effects are looked
    at, also while it is switched off: before the blocks of a live trial.

    Attributes:
        function: the function.
        named: as the setting names it.
        running: a call of it runs.
        undo: has its calls run again as ever.
    """

    def __init__(self, calls, named, function):
        self.function, self.running = function, False
        self.undo: Any = None
        self._calls, self.named = calls, named
        self._left_to_watch = 1 if named.throttled else _WATCHED
        self._read = False  # its code was searched for what a training depends on
        self._drawn = self._draws = None  # random numbers of the last turn that ran, and of the present one
        self.begin()

    def begin(self):
        """Have the next turn run."""
        self._at, self._turn, self._place, self._runs = None, -1, 0, True
        self._results = []  # of the last turn that ran, with the random numbers drawn

    def __call__(self, *args, **kwargs):
        """The result in a tuple; None: the body has to run."""
        if self.named.every == 1 and not self._left_to_watch:
            return None
        if self.running or is_compiling() or threading.get_ident() != self._calls.thread:
            return None
        if self._at != self._calls.step:
            self._at, self._turn, self._place = self._calls.step, self._turn + 1, 0
            self._runs = self._turn < _ALL_RUN or self._turn % self.named.every == 0
            if self._draws is not None and self._drawn not in (None, self._draws):
                self._calls.refuse(self.named, "it does not draw as many random numbers each time")
                return None
            if self._runs:
                self._results, self._drawn, self._draws = [], self._draws, 0
        if not self._runs and self._place < len(self._results):
            result, draws = self._results[self._place]
            self._place += 1
            draws.again()
            self._calls.done(self, result)
            return (copy.copy(result) if type(result) in (dict, list) else result,)
        if not self._read:
            self._read = True
            why = changes_learning(self.function, type(args[0]) if args and hasattr(args[0], "__dict__") else None)
            if why is not None:
                self._calls.refuse(self.named, why)
                return None
        result, draws = self._run(args, kwargs)
        if self._runs:
            self._results.append((result, draws))
            self._draws = (self._draws or 0) + draws.count
        return (result,)

    def _run(self, args, kwargs):
        """Call the function, whose body then runs."""
        effects = SideEffects(self.function, args, kwargs) if self._left_to_watch else None
        draws = Draws()
        self.running = True
        try:
            result = self.function(*args, **kwargs)
        finally:
            self.running = False
        why = draws.finish() or (effects.found(result) if effects else None)
        self._left_to_watch = max(self._left_to_watch - 1, 0)
        if why:
            self._calls.refuse(self.named, why)
        return result, draws
