"""A patch of a script's DataLoader call: keyword arguments set or added, everything else as it was."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flatout.extras import require
from flatout.probe.settings import SETTINGS
from flatout.trials.locations import NOT_TRAINING

if TYPE_CHECKING:
    import libcst as cst

# DataLoader's positional parameters, in order.
_POSITIONAL = (
    "dataset",
    "batch_size",
    "shuffle",
    "sampler",
    "batch_sampler",
    "num_workers",
    "collate_fn",
    "pin_memory",
    "drop_last",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
)
_KEPT = "persistent_workers"
_NOT_KEPT = (
    f"{_KEPT}=True is not written, as the DataLoader is made anew for each pass, where it keeps nothing: make it once, "
    "before the loop over passes, to keep its workers."
)


def patched(source: str, settings: Mapping[str, Any]) -> str | None:
    """The source with the settings in the training's DataLoader call.

    Args:
        source: of a Python file.
        settings: those that are keywords of DataLoader are written; the others are ignored.

    Returns:
        None if there is no such setting, if the call takes one of them from a name (see ``named_values``), or if it is
        not clear which call makes the training's loader, or what its arguments are.

    Raises:
        UsageError: the packages of the ``config`` extra are missing.
    """
    keywords = {name: value for name, value in settings.items() if SETTINGS[name].keyword}
    found = _training_call(source) if keywords else None
    if found is None or any(name in keywords for name in _taken_from_names(*found)):
        return None
    import libcst as cst

    module, call = found
    if _for_each_pass(module, call):
        keywords.pop(_KEPT, None)
    if not keywords:
        return None
    changed = module.deep_replace(call, _with_keywords(call, keywords))
    assert isinstance(changed, cst.Module), "only a call in it was replaced"
    return changed.code


def left_out(source: str, settings: Mapping[str, Any]) -> str:
    """What ``patched`` does not write, though it is set, in a sentence; empty: nothing.

    Args:
        source: of a Python file.
        settings: as for ``patched``.

    Raises:
        UsageError: the packages of the ``config`` extra are missing.
    """
    found = _training_call(source) if settings.get(_KEPT) else None
    return _NOT_KEPT if found is not None and _for_each_pass(*found) else ""


def named_values(source: str, settings: Mapping[str, Any]) -> list[str]:
    """What to set where the training's DataLoader call takes a setting from a name; a sentence each.

    A patch of the call would leave the name, often an option of the command, without effect.

    Args:
        source: of a Python file.
        settings: as for ``patched``.

    Raises:
        UsageError: the packages of the ``config`` extra are missing.
    """
    keywords = {name: value for name, value in settings.items() if SETTINGS[name].keyword}
    found = _training_call(source) if keywords else None
    sentences = []
    for name, code in (_taken_from_names(*found) if found else {}).items():
        if name in keywords:
            # argparse and click: "--num-workers" is the attribute, or the parameter, num_workers.
            last = code.rpartition(".")[2]
            option = re.search(rf"""["'](--{last.replace("_", "[-_]")})["']""", source)
            how = f"add {option[1]} {keywords[name]} to the command" if option else f"set that to {keywords[name]}"
            sentences.append(f"The DataLoader takes {name} from {code}: {how}.")
    return sentences


def _training_call(source: str) -> tuple[cst.Module, cst.Call] | None:
    """The module and its only DataLoader call for training; None if it is not clear which one that is.

    Raises:
        UsageError: the packages of the ``config`` extra are missing.
    """
    require("config")
    import libcst as cst

    try:
        module = cst.parse_module(source)
    except cst.ParserSyntaxError:
        return None
    calls = _training_calls(module)
    if len(calls) != 1 or any(argument.star for argument in calls[0].args):
        return None
    return module, calls[0]


def _for_each_pass(module: cst.Module, call: cst.Call) -> bool:
    """True if the call stands in a loop over passes: one over epochs by name, or around the loop over batches alone."""
    import libcst as cst
    import libcst.matchers as m

    def loops(node: cst.CSTNode) -> list[cst.For | cst.While]:
        return [one for one in m.findall(node, m.For() | m.While()) if isinstance(one, cst.For | cst.While)]

    around = [loop for loop in loops(module) if any(one is call for one in m.findall(loop.body, m.Call()))]
    if not around:
        return False
    innermost = min(around, key=lambda loop: len(loops(loop)))
    target = module.code_for_node(innermost.target) if isinstance(innermost, cst.For) else ""
    inside = loops(innermost.body)
    return "epoch" in target.lower() or (bool(inside) and not any(loops(one.body) for one in inside))


def _taken_from_names(module: cst.Module, call: cst.Call) -> dict[str, str]:
    """Keyword -> code of the arguments that are a name, or an attribute of one."""
    import libcst as cst

    found = {}
    for place, argument in enumerate(call.args):
        key = argument.keyword.value if argument.keyword else _POSITIONAL[place]
        code = module.code_for_node(argument.value)
        if isinstance(argument.value, cst.Name | cst.Attribute) and code not in ("True", "False", "None"):
            found[key] = code
    return found


def _training_calls(module: cst.Module) -> list[cst.Call]:
    """DataLoader calls, except those assigned to a name such as ``val_loader``."""
    import libcst as cst
    import libcst.matchers as m

    def names(node: cst.CSTNode) -> set[str]:
        found = m.findall(node, m.Name())
        return {word for name in found if isinstance(name, cst.Name) for word in name.value.lower().split("_")}

    is_loader = m.Call(func=m.Name("DataLoader") | m.Attribute(attr=m.Name("DataLoader")))
    others: list[cst.CSTNode] = []
    for assignment in m.findall(module, m.Assign() | m.AnnAssign()):
        if isinstance(assignment, cst.Assign):
            targets = [target.target for target in assignment.targets]
        else:
            assert isinstance(assignment, cst.AnnAssign)
            targets = [assignment.target]
        if any(names(target) & NOT_TRAINING for target in targets) and assignment.value is not None:
            others += m.findall(assignment.value, is_loader)
    calls = [call for call in m.findall(module, is_loader) if isinstance(call, cst.Call)]
    return [call for call in calls if not any(call is other for other in others)]


def _with_keywords(call: cst.Call, keywords: Mapping[str, Any]) -> cst.Call:
    import libcst as cst

    written = {key: cst.parse_expression(repr(value)) for key, value in keywords.items()}
    arguments = []
    for place, argument in enumerate(call.args):
        key = argument.keyword.value if argument.keyword else _POSITIONAL[place]
        value = written.pop(key, None)
        arguments.append(argument if value is None else argument.with_changes(value=value))
    tight = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    added = [cst.Arg(value, keyword=cst.Name(key), equal=tight) for key, value in written.items()]
    return call.with_changes(args=_joined(call, arguments, added))


def _joined(call: cst.Call, arguments: Sequence[cst.Arg], added: Sequence[cst.Arg]) -> list[cst.Arg]:
    """All arguments, the added ones with the others' separators; what followed the last one follows the new last."""
    import libcst as cst

    if not arguments or not added:
        return [*arguments, *added]
    last = arguments[-1]
    # If each argument is on its own line, so is each added one.
    space = (
        arguments[-2].comma.whitespace_after
        if len(arguments) > 1 and isinstance(arguments[-2].comma, cst.Comma)
        else call.whitespace_before_args
    )
    if isinstance(space, cst.ParenthesizedWhitespace):
        space = space.with_changes(first_line=cst.TrailingWhitespace(), empty_lines=[])
    else:
        space = cst.SimpleWhitespace(" ")
    comma = cst.Comma(whitespace_after=space)
    before = last.with_changes(comma=comma, whitespace_after_arg=cst.SimpleWhitespace(""))
    end = added[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return [*arguments[:-1], before, *(one.with_changes(comma=comma) for one in added[:-1]), end]
