"""Read a recipe: YAML, then ``--set``, then the command's own options; errors point to the line or the option."""

from __future__ import annotations

import difflib
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.representer import RepresenterError

from flatout.atomic_file import write_atomically
from flatout.errors import UsageError
from flatout.recipes.any_recipe import KINDS, AnyRecipe, kind_of
from flatout.recipes.bounded_yaml import parse_yaml, read_yaml, round_trip_yaml
from flatout.recipes.catalogue import find_recipe
from flatout.recipes.schema import Recipe

FILE_NAME = "recipe.yaml"
AUTO = "auto"  # a batch size that `flatout train` measures
EPOCHS, WARMUP = "training.epochs", "schedule.warmup_epochs"
# The commands' own options, by the keys that they set.
OPTIONS = {
    "data.root": "--data",
    "training.epochs": "--epochs",
    "training.batch_size": "--batch-size",
    "training.max_time": "--max-time",
    "logging.wandb": "--no-wandb",
    "logging.wandb_project": "--wandb-project",
    "logging.wandb_name": "--wandb-name",
}


def read_recipe(
    name_or_path: str,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object | None] | None = None,
    notes: list[str] | None = None,
) -> Recipe:
    """A recipe that classifies images, see :func:`read_any_recipe`.

    Raises:
        UsageError: as there, or it is of another task.
    """
    found = read_any_recipe(name_or_path, overrides, flags, notes)
    if not isinstance(found, Recipe):
        raise UsageError(f"{name_or_path}: task: {found.task}: this is for image-classification only")
    return found


def read_any_recipe(
    name_or_path: str,
    overrides: Sequence[str] = (),
    flags: Mapping[str, object | None] | None = None,
    notes: list[str] | None = None,
) -> AnyRecipe:
    """A recipe of any task with everything that overrides it.

    Args:
        name_or_path: a shipped recipe, or a YAML file.
        overrides: ``key.path=value``, the value as YAML writes it.
        flags: dotted key -> value of the command's own options; None: option not given.
        notes: takes sentences about values that follow from others.

    Raises:
        UsageError: it cannot be read or is not a valid recipe; one line that points to the place.
    """
    path, tree, origin = _merged(name_or_path, overrides, flags)
    notes = [] if notes is None else notes
    notes += _shorten_warmup(tree, origin)
    return _validated(tree, path, origin)


def has_no_batch_size(
    name_or_path: str, overrides: Sequence[str] = (), flags: Mapping[str, object | None] | None = None
) -> bool:
    """True if ``training.batch_size`` is "auto"; arguments and errors as of :func:`read_any_recipe`."""
    _, tree, _ = _merged(name_or_path, overrides, flags)
    return bool(_at(tree, ("training", "batch_size")) == AUTO)


def _merged(
    name_or_path: str, overrides: Sequence[str], flags: Mapping[str, object | None] | None
) -> tuple[Path, Any, dict[str, str]]:
    """The file, its tree with everything that overrides it, and the option that each overridden key is from."""
    path = find_recipe(name_or_path)
    tree = _load(path)
    origin: dict[str, str] = {}
    for text in overrides:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise UsageError(f"--set {text}: give key=value, such as training.epochs=3")
        try:
            parsed = parse_yaml(value, "") if value else None
        except UsageError as error:
            raise UsageError(f"--set {text}: no YAML value: {error}") from None
        _put(tree, key, parsed, f"--set {text}")
        origin[key] = f"--set {text}"
    for key, given in (flags or {}).items():
        if given is not None:
            option = OPTIONS.get(key, f"the command's option for {key}")
            _put(tree, key, given, option)
            origin[key] = f"{option} {given}"
    return path, tree, origin


def _shorten_warmup(tree: Any, origin: Mapping[str, str]) -> list[str]:
    """Shorten a warm-up that was not chosen together with the number of epochs; returns what to say about it."""
    warmup, epochs = _at(tree, ("schedule", "warmup_epochs")), _at(tree, ("training", "epochs"))
    chosen = WARMUP in origin or (warmup is not None and EPOCHS not in origin)
    warmup = _default(kind_of(tree), WARMUP) if warmup is None else warmup
    is_section = isinstance(tree.get("schedule") or {}, dict)
    if (
        chosen
        or not is_section
        or not isinstance(epochs, int)
        or not isinstance(warmup, int | float)
        or not 0 < epochs <= warmup
    ):
        return []
    shorter = epochs / 10
    _put(tree, WARMUP, shorter, f"--set {WARMUP}")
    return [f"warm-up: {shorter:g} epochs instead of {warmup:g}, since {epochs} are trained (--set {WARMUP}=N)"]


def check_key(key: str, option: str) -> None:
    """Check that a recipe of some task has a key; ``data`` stands for the images or volumes.

    Raises:
        UsageError: there is none; the nearest name is given.
    """
    known = [name for kind in KINDS.values() for name, _ in _keys(kind)]
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        raise UsageError(f"{option} {key}: no key of a recipe{f': did you mean {near[0]}?' if near else ''}")


def save_recipe(recipe: AnyRecipe, folder: Path) -> Path:
    """Write the resolved recipe, each key with its meaning; reading it back yields an equal one."""
    path = folder / FILE_NAME
    head = "# The recipe as it was resolved for this run: defaults, file and command line together.\n"
    write_atomically(path, head + every_key(recipe))
    return path


def every_key(recipe: AnyRecipe) -> str:
    """A recipe as YAML with all of its keys, each with its meaning."""
    lines: list[str] = []
    for name, field in type(recipe).model_fields.items():
        value = getattr(recipe, name)
        lines.append(f"\n# {field.description}\n")
        if not isinstance(value, BaseModel):
            lines.append(f"{name}: {_scalar(value)}\n")
            continue
        lines.append(f"{name}:\n")
        for key, part in type(value).model_fields.items():
            inner = getattr(value, key)
            lines.append(f"  # {part.description}\n")
            plain = inner.model_dump() if isinstance(inner, BaseModel) else inner
            lines.append(f"  {key}: {_scalar(plain)}\n")
    return "".join(lines)


def write_value(path: Path, key: str, value: object, why: str) -> None:
    """Change one key of a recipe file; comments and order stay, and the file is replaced at once.

    Args:
        path: the user's YAML file.
        key: dotted, ``optimizer.lr``.
        value: a plain value.
        why: a comment for its line.
    """
    write_atomically(path, with_values(path, {key: (value, why)}))


def with_values(path: Path, values: Mapping[str, tuple[object, str]]) -> str:
    """The text of a recipe file with other values of some keys.

    Args:
        path: of the file.
        values: dotted key -> a plain value, and a comment for its line.
    """
    tree = _load(path)
    for key, (value, why) in values.items():
        section = tree
        *outer, last = key.split(".")
        for name in outer:
            section = section.setdefault(name, {})
        section[last] = _in_one_line(value) if isinstance(value, list) else value
        if hasattr(section, "yaml_add_eol_comment"):
            section.yaml_add_eol_comment(why, last)
    text = io.StringIO()
    round_trip_yaml().dump(tree, text)
    return text.getvalue()


def _in_one_line(values: list[object]) -> Any:
    from ruamel.yaml.comments import CommentedSeq

    line = CommentedSeq(values)
    line.fa.set_flow_style()
    return line


def _load(path: Path) -> Any:
    tree = parse_yaml(read_yaml(path), path.name)
    if tree is None:
        return {}
    if not isinstance(tree, dict):
        raise UsageError(f"{path.name}: a recipe is keys and values, this is {_kind(tree)}")
    return tree


def _kind(value: object) -> str:
    return "a list" if isinstance(value, list) else "a single value"


def _put(tree: Any, key: str, value: object, option: str) -> None:
    *outer, last = key.split(".")
    section = tree
    for name in outer:
        if section.get(name) is None:
            section[name] = {}
        section = section[name]
        if not isinstance(section, dict):
            raise UsageError(f"{option}: {name} is a value, not a section")
    section[last] = value


def _validated(tree: Any, path: Path, origin: Mapping[str, str]) -> AnyRecipe:
    try:
        return kind_of(tree).model_validate(_plain(tree))
    except ValidationError as error:
        raise UsageError(_one_line_of(error.errors()[0], tree, path, origin)) from None


def _one_line_of(error: Any, tree: Any, path: Path, origin: Mapping[str, str]) -> str:
    """One line with the mistake's place, its key, the allowed values and the value found."""
    message = error["msg"].removeprefix("Value error, ")
    known = dict(_keys(kind_of(tree)))
    parts = [str(part) for part in error["loc"]]
    if not parts:  # of several keys together: the message names them, the one to blame first
        named = [key for key in re.findall(r"[a-z_]+\.[a-z_]+", message) if key in known]
        given = next((key for key in named if key in origin), named[0] if named else "")
        place = origin[given] if given in origin else _place(tree, given.split("."), path)
        return f"{place}: {message}"
    parts = _known_part(parts, known)
    key = ".".join(parts)
    given_by = [origin[outer] for outer in _outer(parts) if outer in origin]
    place = given_by[0] if given_by else _place(tree, parts, path)
    if error["type"] == "extra_forbidden":
        return f"{place}: {key}: unknown key{_nearest(parts, known)}"
    value = _at(tree, parts)
    seen = "" if isinstance(value, dict) and len(value) > 3 else f" (it says {_scalar(_plain(value))})"
    return f"{place}: {key}: {_allowed(error, parts, known)}{seen}"


def _known_part(parts: list[str], known: Mapping[str, Any]) -> list[str]:
    """The keys of a place, without pydantic's names of types and places in lists."""
    while len(parts) > 1 and ".".join(parts) not in known and ".".join(parts[:-1]) in known:
        field = known[".".join(parts[:-1])]
        if any(isinstance(part, type) and issubclass(part, BaseModel) for part in _types(field.annotation)):
            break  # an unknown key of a section
        parts = parts[:-1]
    return parts


def _allowed(error: Any, parts: Sequence[str], known: Mapping[str, Any]) -> str:
    """The allowed values of a key, with an example if the form was wrong."""
    field = known.get(".".join(parts))
    message: str = error["msg"].removeprefix("Value error, ").replace("Input should be", "has to be")
    kind = error["type"]
    if kind in ("model_type", "dict_type", "model_attributes_type"):
        inner = (
            next((part for part in _types(field.annotation) if hasattr(part, "model_fields")), None) if field else None
        )
        first = next(iter(inner.model_fields.items()), None) if inner is not None else None
        example = f"{{{first[0]}: {_scalar(first[1].get_default(call_default_factory=True))}}}" if first else "{}"
        return f"is a section: give its keys, such as {example}"
    if kind in ("tuple_type", "missing", "too_long", "too_short") and field is not None:
        default = field.get_default(call_default_factory=True)
        examples = {
            "betas": "[0.9, 0.999]",
            "cutmix_range": "[0.2, 0.8]",
            "mean": "[0.485, 0.456, 0.406]",
            "std": "[0.229, 0.224, 0.225]",
        }
        example = examples.get(parts[-1]) or _scalar(default)
        return f"is a list of {example.count(',') + 1} numbers: give one such as {example}"
    if kind == "literal_error" and list(parts) == ["task"]:
        return f"allowed are {' or '.join(KINDS)}"
    if kind == "literal_error":
        return f"allowed are {error['ctx']['expected'].replace(chr(39), '')}"
    if kind == "finite_number":
        return "has to be a finite number"
    return message[:1].lower() + message[1:] if message.startswith("Unable") else message


def _types(annotation: Any) -> list[Any]:
    """An annotation and the members of its union."""
    return [annotation, *getattr(annotation, "__args__", ())]


def _at(tree: Any, parts: Sequence[str]) -> Any:
    for part in parts:
        if not isinstance(tree, dict) or part not in tree:
            return None
        tree = tree[part]
    return tree


def _outer(parts: Sequence[str]) -> list[str]:
    """A key and the sections around it, innermost first."""
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]


def _nearest(parts: Sequence[str], known: Mapping[str, Any]) -> str:
    """The known key that an unknown one may mean, here or in another section."""
    here = ".".join(parts[:-1])
    local = [key for key in known if key.rpartition(".")[0] == here]
    name = parts[-1]
    near = difflib.get_close_matches(name, [key.rpartition(".")[2] for key in local], 1)
    if near:
        return f": did you mean {here + '.' if here else ''}{near[0]}?"
    elsewhere = [key for key in known if key.rpartition(".")[2] == name]
    if len(elsewhere) == 1:
        return f": it belongs to {elsewhere[0]}"
    return f": known here are {', '.join(sorted(key.rpartition('.')[2] for key in local))}"


def _default(model: type[BaseModel], key: str) -> Any:
    return dict(_keys(model))[key].get_default(call_default_factory=True)


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, field in model.model_fields.items():
        yield prefix + name, field
        annotation = field.annotation
        for candidate in _types(annotation):
            if isinstance(candidate, type) and issubclass(candidate, BaseModel):
                yield from _keys(candidate, f"{prefix}{name}.")


def _place(tree: Any, parts: Sequence[str], path: Path) -> str:
    """File and line of a key, or of the innermost section around it that the file has."""
    line = None
    section = tree
    for part in parts:
        if not isinstance(section, dict) or part not in section:
            break
        marks = getattr(section, "lc", None)
        if marks is not None and part in (marks.data or {}):
            line = marks.data[part][0] + 1
        section = section[part]
    return path.name if line is None else f"{path.name}:{line}"


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_plain(inner) for inner in value]
    for kind in (bool, int, float, str):
        if isinstance(value, kind):
            return kind(value)
    return value


def _scalar(value: object) -> str:
    """A value in YAML's flow style, on one line."""
    yaml = YAML(typ="safe")
    yaml.default_flow_style = True
    yaml.width = 10_000
    text = io.StringIO()
    try:
        yaml.dump(list(value) if isinstance(value, tuple) else value, text)
    except RepresenterError:  # a custom tag
        return str(value)
    return text.getvalue().removesuffix("\n").removesuffix("...").rstrip("\n")
