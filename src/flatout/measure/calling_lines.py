"""The lines of code that call a function of torch, from the stack samples of the training thread."""

from __future__ import annotations

import re

from flatout.measure.samples import Samples, frames_of, line_of, stack_weights
from flatout.results import Line

_CALLED = re.compile(r"\b([A-Za-z]\w*)\s*\(")
_MATRIX_PRODUCT = re.compile(r"[\w\])]\s@\s[\w(]")
_MOST_LINES = 2


def calling_lines(samples: Samples) -> dict[str, tuple[Line, ...]]:
    """The user's lines by the name of the function that torch's C++ code was called by, the most samples first.

    While C++ code runs, the innermost Python frame is the line that called it: such as ``return F.conv2d(`` in
    torch's own ``Conv2d``. That line names the function, and the user's line further out is the one to name.
    """
    found: dict[str, dict[tuple[str, int], tuple[Line, float]]] = {}
    for id, amount in stack_weights(samples).items():
        frames, line = frames_of(samples.names, id), line_of(samples.names, id)
        if not frames or line is None:
            continue
        source = str(frames[0][3])
        names = set(_CALLED.findall(source)) | ({"matmul"} if _MATRIX_PRODUCT.search(source) else set())
        for name in names:
            lines = found.setdefault(name, {})
            known, before = lines.get((line.file, line.line), (line, 0.0))
            lines[line.file, line.line] = (known, before + amount)
    return {
        name: tuple(line for line, _ in sorted(lines.values(), key=lambda item: -item[1])[:_MOST_LINES])
        for name, lines in found.items()
    }
