"""Work that is done twice: operators with the same inputs as an earlier one, and their backward passes.

Two steps are looked at, one after the other: what each of them computes of what does not change counts as a whole.
"""

import os
import sys
import threading
import time
from typing import Any, NamedTuple, Optional

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..recorder import REC, report_fault
from ..sites import is_user_file
from .broadcast_pairs import BroadcastPairs
from .coordinate_products import CoordinateProducts
from .gathered_weights import GatheredWeights
from .graph_uses import GraphUses
from .loss_targets import LossTargets
from .model_functions import ModelFunctions
from .read_values import ReadValues
from .repeated_rows import RepeatedRows
from .slice_lines import SliceLines
from .spanning_kernels import SpanningKernels
from .stepwise_layers import StepwiseLayers
from .stepwise_products import StepwiseProducts
from .unfused_attention import UnfusedAttention
from .unfused_functions import UnfusedFunctions
from .unmerged_layers import UnmergedLayers
from .value_numbers import ValueNumbers, holds_tensor, is_view, written
from .zero_operands import ZeroOperands

LONGEST_NS = 2_000_000_000  # in one step; what comes later is only run
LONGEST_STEP_NS = 2 * LONGEST_NS  # of a longer one, not even the forward pass may be seen
_STEPS = 2
MOST_OPERATORS = 50_000
MOST_LINES = 8
# Files of torch's that call operators: why, and whether on purpose, to save memory.
_CHECKPOINT = "torch/utils/checkpoint.py"
_REASONS = {"torch/nn/utils/parametrize.py": "parametrization", "torch/autograd/__init__.py": "gradient"}
# Where torch does not say, operators of backward passes belong to no operator.
_node: Any = getattr(torch._C, "_current_autograd_node", None)
_sequence: Any = getattr(torch.autograd, "_get_sequence_nr", None)
_NO_NODE = -1


class _Call(NamedTuple):
    """An operator that ran.

    Attributes:
        began: ns, or an event of the device.
        again: with the inputs of an earlier one.
        line: file, line and function of the user's that called it again, through what; None: on purpose.
        node: of the graph whose backward pass it is a part of; None: of none.
        made: the node that its own backward pass will have.
        first: the node of the earlier call of this step with the same inputs; _NO_NODE: none; None: no such call.
    """

    name: str
    began: Any
    ended: Any
    again: bool
    line: Any
    node: Optional[int]
    made: Optional[int]
    first: Optional[int] = None


class RepeatedWork(TorchDispatchMode):  # type: ignore[misc]
    """Watches the operators of this thread between ``begin`` and ``end``.

    Attributes:
        over: nothing more is looked at.
        left: steps that are still to be looked at.
    """

    def __init__(self):
        super().__init__()
        self.over, self.left = False, _STEPS
        self._watching = False  # otherwise it only runs what is called
        self._values: Any = ValueNumbers(compared=True)
        self._calls: Any = []
        self._first: Any = {}  # what an operator computes -> the node of the call that computed it first in this step
        self._targets: Any = LossTargets()
        self._zeros: Any = ZeroOperands()
        self._stepwise: Any = StepwiseLayers(lambda: self._watching and not self.over)
        self._repeated_rows: Any = RepeatedRows(lambda tensor: self._values.number(tensor), _line)
        self._slices: Any = SliceLines(_line)
        self._read: Any = ReadValues(_line)
        self._functions: Any = ModelFunctions()
        self._device = torch.cuda.is_initialized()
        self._begun_ns = 0
        self._made = 0  # nodes, as torch counts them
        self._coordinates: Any = CoordinateProducts(_line)
        self._uses: Any = GraphUses()
        self._attention: Any = UnfusedAttention(_line, self._uses)
        # What is timed in another form, from what the forward pass shows.
        self._forms: Any = (
            UnmergedLayers(lambda tensor: self._values.number(tensor), _line),
            SpanningKernels(_line),
            UnfusedFunctions(),
            self._coordinates,
            GatheredWeights(_line),
            StepwiseProducts(_line),
            self._attention,
            BroadcastPairs(_line, self._uses),
        )
        self._cut_behind = False  # the step was too long, and its forward pass had been seen

    def begin(self):
        """A step begins."""
        global _entered
        if self._watching or self.over or torch.is_inference_mode_enabled():
            return
        if _entered is not self:
            if torch._C._len_torch_dispatch_stack():  # it would take this one away when it ends
                self.over = True
                skipped("a TorchDispatchMode of the program's is on between its steps")
                return
            _entered = self
            self.__enter__()
            torch.empty(0)  # the first operator in a mode may import torch._dynamo, which takes seconds
        self._begun_ns = time.perf_counter_ns()
        self._made = _sequence() if _sequence is not None else 0
        self._watching = True
        self._stepwise.begin()
        self._repeated_rows.begin()
        self._slices.begin()
        self._read.begin()
        self._functions.begin()
        self._uses.begin()
        for forms in self._forms:
            forms.begin()

    def end(self, whole):
        """It has ended; if it was a whole one, the record gets what was done twice."""
        if not self._watching:
            return
        self._watching = False
        cut = self.over  # it was too long to be seen as a whole
        leave()
        calls, self._calls, self._first = self._calls, [], {}
        self._zeros.end()
        self._targets.end()
        self._stepwise.end(whole)
        if whole:
            if self._device:
                torch.cuda.synchronize()
            REC.save_process(repeated_work=dict(summary(calls), cut=cut))
            self._repeated_rows.save(calls, _ns)
            self._slices.save()
            self._functions.save()
            if not cut:
                self._read.save(calls, _ns)
            if not cut or self._cut_behind:
                for forms in self._forms:
                    if not forms.done:
                        forms.save()
            self._targets.save()
            self._zeros.save()
            self.left = 0 if cut else self.left - 1
        for forms in (*self._forms, self._read):
            forms.begin()  # they hold nothing
        if not self.left:
            self._coordinates.forget()
        if whole and self.left:
            self._values.next_step()
        else:
            self._values = ValueNumbers(compared=self.left == _STEPS)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Run an operator, and note whether it ran with the same inputs before."""
        kwargs = kwargs or {}
        if self.over or not self._watching:
            return func(*args, **kwargs)
        name = _name(func)
        self._quietly(self._targets.look, name, args)
        if _node is not None:
            self._quietly(self._zeros.look, name, args, _node() is not None)
        key = self._quietly(self._values.key, func, args, kwargs)
        began = self._quietly(self._clock)
        result = func(*args, **kwargs)
        if self._watching and not self.over:
            self._quietly(self._note, func, key, args, kwargs, result, began)
        return result

    def _quietly(self, function, *arguments):
        try:
            return function(*arguments)
        except Exception:
            report_fault("experiment")
            self.over = True
        return None

    def _clock(self):
        if not self._device:
            return time.perf_counter_ns()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def _note(self, func, key, args, kwargs, result, began):
        ended, view = self._clock(), is_view(func)
        changed = written(func, args, kwargs)
        again = self._values.made(key, args, result, view, changed)
        self._repeated_rows.forget(changed)
        node = _node() if _node is not None else None
        if node is None:
            self._stepwise.look(_name(func), args, result)
        # Behind the first random number nothing has the same inputs, though checkpointing repeats the number.
        recomputed = node is not None and torch.is_grad_enabled() and _in_checkpoint()
        if again and self.left < _STEPS and not holds_tensor(args):
            again = False  # what an operator makes of nothing, such as zeros, may be changed in each step
        made = None
        if _sequence is not None and threading.get_ident() == REC.training_thread:  # each thread counts its own nodes
            before, self._made = self._made, _sequence()
            made = self._made - 1 if self._made > before else None
        if node is None:
            self._functions.look(made)
            self._slices.look(_name(func), args)
            self._read.look(_name(func), args)
        else:
            if made is not None and torch.is_grad_enabled():
                self._attention.differentiated()
            self._read.look_back(node._sequence_nr(), made, torch.is_grad_enabled())
        if view:  # it computes nothing
            if _name(func) == "lift_fresh":
                self._repeated_rows.forget(result)
            return
        if node is None:
            self._targets.made(_name(func), args, result)
            if self.left == _STEPS:
                self._uses.look(_name(func), args)
            self._repeated_rows.look(_name(func), args, result, len(self._calls), made)
            for forms in self._forms:
                if not forms.done:
                    forms.look(_name(func), args, result, made)
        first = self._first.get(key)
        if key is not None and first is None:
            self._first[key] = _NO_NODE if made is None else made
        self._calls.append(
            _Call(
                _name(func),
                began,
                ended,
                again or recomputed,
                _line() if again and not recomputed else None,
                node._sequence_nr() if node is not None else None,
                made,
                first,
            )
        )
        if len(self._calls) >= MOST_OPERATORS or time.perf_counter_ns() - self._begun_ns > LONGEST_NS:
            self.over, self._cut_behind = True, node is not None


_entered: Optional[RepeatedWork] = None


def leave():
    """Take the mode off this thread's stack once its step is over. Where that is not possible it stays, and is idle.

    A mode of the user's may lie above. In a backward pass torch puts the mode back. And what enters inference mode puts
    torch's dispatch keys back when it leaves: with the one for modes, but without a mode, each operator would fail.
    """
    global _entered
    mode = _entered
    if mode is None or (mode._watching and not mode.over) or (_node is not None and _node() is not None):
        return
    if _top() is mode and not torch.is_inference_mode_enabled():
        _entered = None
        mode.__exit__(None, None, None)


def _name(func):
    """Of an operator, without its overload; of one that is not torch's, with its namespace."""
    name = func._overloadpacket.__name__
    return name if func.namespace == "aten" else f"{func.namespace}::{name}"


def _in_child():
    if _entered is not None:  # a worker was forked in the step, and has no use for it
        _entered.over = True


os.register_at_fork(after_in_child=_in_child)


def skipped(because):
    """Write into the record why no step is looked at."""
    REC.save_process(repeated_work={"skipped": because})


def summary(calls):
    """What of the calls of a step was done again, as the record has it."""
    found: Any = {"operators": len(calls), "ns": 0, "again_ns": 0, "behind_ns": 0, "on_purpose_ns": 0}
    lines: Any = {}
    nodes: Any = set()  # of operators that ran again, and of their backward passes
    # Where the earlier call has no backward pass, as that of an evaluation, the one of the later call is needed.
    needless: Any = {None, *(call.node for call in calls)} - {_NO_NODE}
    for call, again in zip(calls, _avoidable(calls)):
        ns = _ns(call)
        found["ns"] += ns
        behind = not again and call.node is not None and call.node in nodes
        if again and call.line is None:
            found["on_purpose_ns"] += ns
        elif again:
            found["again_ns"] += ns
            spent = lines.setdefault((*call.line, call.name), [0, 0])
            spent[0] += ns
            spent[1] += 1
        elif behind:
            found["behind_ns"] += ns
        if call.made is not None and (behind or (again and call.line is not None and call.first in needless)):
            nodes.add(call.made)
    most = sorted(lines.items(), key=lambda item: -item[1][0])[:MOST_LINES]
    found["lines"] = [[*where, *spent] for where, spent in most]
    return found


def _avoidable(calls):
    """Whether each call need not have been made, or is one on purpose.

    In a backward pass a node's operators are all needed as soon as one is, as with another gradient: then what it
    computes of the forward pass alone, as the cosine of a sine's input, cannot be kept by a program.
    """
    found: Any = []
    start = 0
    while start < len(calls):
        end = start + 1
        node = calls[start].node
        while node is not None and end < len(calls) and calls[end].node == node:
            end += 1
        needed = not all(call.again for call in calls[start:end])
        found += [call.again and (call.line is None or not needed) for call in calls[start:end]]
        start = end
    return found


def _ns(call):
    if isinstance(call.began, int):
        return call.ended - call.began
    return round(call.began.elapsed_time(call.ended) * 1e6)


def _line():
    """File, line and function of the user's that calls an operator, and through what of torch's.

    None where it is computed again on purpose, to save memory.
    """
    frame: Any = sys._getframe(2)
    found, reason = ("", 0, ""), ""
    while frame is not None:
        name = frame.f_code.co_filename
        if name.endswith(_CHECKPOINT):
            return None
        if not found[0]:
            reason = next((_REASONS[end] for end in _REASONS if name.endswith(end)), reason)
            if is_user_file(name):
                found = name, frame.f_lineno, frame.f_code.co_name
        frame = frame.f_back
    return (*found, reason)


def _in_checkpoint():
    """True if activation checkpointing of torch's calls an operator."""
    frame: Any = sys._getframe(2)
    while frame is not None:
        if frame.f_code.co_filename.endswith(_CHECKPOINT):
            return True
        frame = frame.f_back
    return False


def _top():
    depth = torch._C._len_torch_dispatch_stack()
    return torch._C._get_dispatch_stack_at(depth - 1) if depth else None
