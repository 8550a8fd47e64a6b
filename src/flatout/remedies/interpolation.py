"""Interpolation of arrays: SciPy's functions use cubic splines unless they are told otherwise."""

from __future__ import annotations

import re

from flatout.measure.loader_stats import LoaderStats
from flatout.predict.context import Context
from flatout.predict.fetch_changes import TRANSFORM_GROUPS, group_share, without_groups
from flatout.remedies.proposal import DATA, Proposal, remedy
from flatout.results import Cause
from flatout.units import percent

_CALLED = re.compile(r"\b(rotate|shift|zoom|affine_transform|map_coordinates|geometric_transform)\(")
_CHEAP = re.compile(r"\border\s*=\s*[01]\b|\bspline_filter")
_LEAST_PART = 0.1  # of what is prepared
# Part of a call that linear interpolation saves, measured with SciPy 1.17 on float32 arrays of 3 x 63 x 63, 1 x 256 x
# 256 and 48 x 48 x 48 values, one thread: 58% to 63% of rotate, 88% to 94% of shift, 86% to 90% of zoom, 67% to 85% of
# the others.
_SAVED = {"rotate": 0.6, "shift": 0.9, "zoom": 0.87}
_OTHERS_SAVED, _LEAST, _MOST = 0.75, 0.8, 1.1  # times what is usual


@remedy(("cpu_transform",), DATA, risk="medium")
def linear_interpolation(context: Context, cause: Cause) -> Proposal | None:
    """Interpolate linearly where SciPy fits cubic splines."""
    loader = context.run.loading
    if loader is None or loader.functions.packages.get("transform") != "scipy":
        return None
    names, part, saved = _spline_calls(loader)
    if part < _LEAST_PART:
        return None
    return Proposal(
        title=f"interpolate linearly, not by cubic splines, in {' and '.join(names)}",
        change=without_groups(loader, TRANSFORM_GROUPS, saved),
        least=without_groups(loader, TRANSFORM_GROUPS, _LEAST * saved),
        most=without_groups(loader, TRANSFORM_GROUPS, min(_MOST * saved, part)),
        how=f"ndimage.{names[0]}(..., order=1); several of them as one affine_transform. Masks take order=0",
        basis=f"measured time of the lines that call them, of which linear interpolation saved {percent(saved / part)} "
        "elsewhere",
        memory_bytes=0,
    )


def _spline_calls(loader: LoaderStats) -> tuple[list[str], float, float]:
    """The functions that hot lines call with their default order; these lines' part of what is prepared, 0..1.

    The third is the part of it that linear interpolation saves.
    """
    lines = [line for group in TRANSFORM_GROUPS for line in loader.functions.lines_of_group.get(group, ())]
    found = {
        line: call[1] for line in lines if (call := _CALLED.search(line.source)) and not _CHEAP.search(line.source)
    }
    cpu_s = float(loader.fetch.cpu_s.sum()) if loader.fetch.cpu_s is not None else 0.0
    whole = max(cpu_s * group_share(loader.functions.cpu_groups, TRANSFORM_GROUPS), sum(line.seconds for line in lines))
    if whole <= 0:
        return [], 0.0, 0.0
    names = sorted(set(found.values()), key=lambda name: -sum(line.seconds for line in found if found[line] == name))
    saved_s = sum(line.seconds * _SAVED.get(name, _OTHERS_SAVED) for line, name in found.items())
    return names, sum(line.seconds for line in found) / whole, saved_s / whole
