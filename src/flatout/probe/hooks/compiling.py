"""What torch.compile compiles: each function with its time, why it is compiled again, and where its graph breaks.

Nothing runs unless something is compiled: torch's own compiler is timed, and its own notes are read when it has ended.
"""

import functools
import re
import sys
from typing import Any

from .. import events, in_place
from ..recorder import REC, now, report_fault
from ..sites import describe_frame, is_user_file

MOST_ENTRIES = 500  # of compilations, and of breaks
LONGEST = 240  # characters of a reason

_NUMBER = re.compile(r"^\d+/\d+(_\d+)?: ")  # of the compiled code whose guard failed
_COMMENT = re.compile(r"\s{2,}# .*")  # torch adds the source of the guard, and hints
_LIMIT = re.compile(r"(cache|recompil\w*)[ _](size[ _])?limit", re.IGNORECASE)


class _State:
    __slots__ = ("breaks", "frames")

    def __init__(self):
        self.frames = 0  # functions that are being compiled, one inside the other
        self.breaks = 0  # of torch's list of graph breaks, those that were looked at


_state = _State()
_starts: "list[int]" = []  # of what the callbacks announced
_failures: Any = {}  # code -> how many of its failed guards were looked at
_compilations: Any = {}  # fields of an entry -> its id
_breaks: Any = {}  # place and reason -> (id, count)


def time_callbacks(callback):
    """Time what torch announces: backward graphs that are compiled late, and recordings of CUDA graphs.

    Args:
        callback: ``torch._dynamo.callback``, from torch 2.2 on.
    """
    # The handler's own methods: callbacks that are registered with it are forgotten by torch._dynamo.reset().
    handler = type(callback.callback_handler)
    started, ended = handler.run_start_callbacks, handler.run_end_callbacks

    def run_start_callbacks(self, *args, **kwargs):
        _starts.append(now())
        return started(self, *args, **kwargs)

    def run_end_callbacks(self, *args, **kwargs):
        _announced_ended()
        return ended(self, *args, **kwargs)

    handler.run_start_callbacks = run_start_callbacks
    handler.run_end_callbacks = run_end_callbacks


def _announced_ended():
    start = _starts.pop() if _starts else None
    if start is not None and REC.on and not _state.frames:
        try:
            REC.emit(events.COMPILE, start, now(), REC.names.text("torch.compile"))
        except Exception:
            report_fault("compile")


def time_functions(convert_frame):
    """Time the compilation of each function, from the first one on.

    Every training with an optimizer imports the compiler: only one that compiles something pays for instrumenting it.

    Args:
        convert_frame: ``torch._dynamo.convert_frame``.
    """
    begins = getattr(convert_frame, "increment_frame", None)  # called before each compilation
    if begins is None:
        return _instrument(convert_frame._compile)

    @functools.wraps(begins)
    def first():
        convert_frame.increment_frame = begins
        _instrument(convert_frame._compile)
        return begins()

    convert_frame.increment_frame = first


def _instrument(compiler):
    function = in_place.innermost(compiler)
    try:
        if not in_place.is_instrumented(function):
            in_place.instrument(function, _begins, _ended)
    except Exception:  # another version of torch: which functions are compiled stays unknown
        pass


def _begins(code):
    if not REC.on:
        return None
    _state.frames += 1
    return now(), code


def _ended(call, result):
    end = now()
    _state.frames -= 1
    try:
        start, code = call
        error = sys.exc_info()[1] if result is call else None
        reason = _why_again(code)
        limited = error is not None and bool(_LIMIT.search("%s %s" % (type(error).__name__, error)))
        if REC.on:
            REC.emit(events.COMPILE, start, end, _compilation(code, reason, limited))
            _note_breaks(bool(reason))
            if error is not None and not limited:
                _note_failure(code, error)
    except Exception:
        report_fault("compile")


def _compilation(code, reason, limited):
    """Name id of one compilation of a function, of all that have the same reason."""
    fields = _place(code)
    fields["reason"] = reason
    if limited:
        fields["limited"] = True
    key = (REC.names, *fields.values())  # a forked process has names of its own
    if key not in _compilations:
        if len(_compilations) >= MOST_ENTRIES:
            return REC.names.text("torch.compile")
        _compilations[key] = REC.names.add("compilation", **fields)
    return _compilations[key]


def _place(code):
    path, line, function, _, _ = describe_frame(code, code.co_firstlineno)
    return {"file": path, "line": line, "function": function}


def _why_again(code):
    """The guard of the latest compiled version that failed, in torch's words; empty for a first compilation."""
    failures = getattr(sys.modules.get("torch._dynamo.utils"), "guard_failures", None)
    found = failures.get(code) if isinstance(failures, dict) else None
    if not found:
        return ""
    known = _failures.get(code, 0)
    _failures[code] = len(found)
    new = found[known:] if known <= len(found) else found  # torch._dynamo.reset() empties the list
    first = new[0] if new else ""
    return _first_line(first[0] if isinstance(first, (list, tuple)) and first else first)


def _first_line(text):
    lines = str(text).strip().splitlines()
    return _COMMENT.sub("", _NUMBER.sub("", lines[0].strip()))[:LONGEST] if lines else ""


def _note_breaks(again):
    """Note the graph breaks that torch has found since the last time; those of a function compiled again are known."""
    found = getattr(sys.modules.get("torch._dynamo.utils"), "graph_break_reasons", None)
    if not isinstance(found, list):
        return
    if len(found) < _state.breaks:
        _state.breaks = 0
    new, _state.breaks = found[_state.breaks :], len(found)
    for one in new:
        _note_break(_user_place(one.user_stack), one.reason, again)


# untested: only for functions that torch.compile refuses as a whole
def _note_failure(code, error):
    """A function that torch could not compile at all runs as it is: one more break."""
    if type(error).__name__ == "Unsupported" or "graph break" in str(error):
        _note_break(_user_place(getattr(error, "real_stack", None)) or _place(code), error, False)


def _user_place(stack):
    """The innermost line of the user's own code; the innermost one of all where there is none."""
    frames = list(stack or ())
    for frame in reversed(frames):
        if is_user_file(frame.filename):
            break
    else:
        if not frames:
            return None
        frame = frames[-1]
    return {"file": frame.filename, "line": frame.lineno, "function": frame.name}


def _note_break(place, reason, again):
    if place is None:
        return
    fields = dict(place, reason=_first_line(reason))
    key = (REC.names, *fields.values())
    number, count = _breaks.get(key, (None, 0))
    if number is None:
        if len(_breaks) >= MOST_ENTRIES:
            return
        number = REC.names.add("graph_break", count=1, **fields)
    elif again:
        return
    else:
        REC.names.write(number, "graph_break", {"count": count + 1})
    _breaks[key] = number, count + 1
