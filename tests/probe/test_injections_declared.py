"""The registry of settings is the only one: remedies, injectors and everybody in between read it."""

from __future__ import annotations

import ast
import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from flatout.probe import injections
from flatout.probe.settings import SETTINGS, injected_by
from flatout.remedies import REMEDIES
from flatout.trials.outcome import REFUSED, Execution, classify
from tests.trials.made_runs import speed

SOURCE = Path(injections.__file__).parents[2]
INJECTORS = sorted({setting.injector for setting in SETTINGS.values() if setting.injector})
# Collections of something else that bears the same names.
OTHERS = {
    "measure/build.py",  # what the record has of the training process
    "probe/hooks/image_loader.py",  # what the record has of flatout's own loader
    "probe/injections/backends.py",  # how each setting of torch's own libraries is set
    "probe/injections/loader.py",  # how each setting of the loader is set
    "record/fields.py",  # types of what the record has
    "trials/shared_samples.py",  # what lies in memory that runs share
    "trials/source_patch.py",  # parameters of DataLoader, in its own order
}


def strings(tree: ast.AST) -> set[str]:
    return {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)}


def proposed() -> set[str]:
    """Names in the settings of all remedies, as they are written."""
    names = {"read_from"}  # of a copy of the data, whose settings are made when the trial is
    for path in (SOURCE / "remedies").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.keyword) and node.arg == "settings":
                for part in ast.walk(node.value):
                    if isinstance(part, ast.Dict):
                        names |= {key.value for key in part.keys if isinstance(key, ast.Constant)}
    return names


def literal_tables() -> Iterator[tuple[str, int]]:
    """File and line of each literal collection that holds three names of settings or more."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Tuple | ast.List | ast.Set):
                parts = node.elts
            elif isinstance(node, ast.Dict):
                parts = [key for key in node.keys if key is not None]
            else:
                continue
            names = {part.value for part in parts if isinstance(part, ast.Constant)} & SETTINGS.keys()
            if len(names) >= 3:
                yield str(path.relative_to(SOURCE)), node.lineno


def test_every_setting_that_a_remedy_proposes_is_declared_with_a_way_to_set_it() -> None:
    names = proposed()
    assert len(names) >= 18
    assert names <= SETTINGS.keys()
    assert all(SETTINGS[name].injector or SETTINGS[name].aliases for name in names)


@pytest.mark.parametrize("name", sorted(proposed()))
def test_a_proposed_setting_that_did_not_take_effect_is_noticed_after_a_trial(name: str) -> None:
    setting = SETTINGS[name]
    if setting.injector:
        injected = Execution(stop="steps", wall_s=1.0, speed=speed(100.0), injected={name: "wanted"})
        assert classify(injected).outcome == REFUSED
    if setting.recorded:
        located = Execution(
            stop="steps", wall_s=1.0, speed=speed(100.0), located={name: "wanted"}, loader={name: "another"}
        )
        assert classify(located).outcome == REFUSED
    # A DataLoader's own value is in the record, wherever the user keeps it.
    assert setting.recorded or not setting.keyword


@pytest.mark.parametrize("module", INJECTORS)
def test_an_injector_sets_what_is_declared_for_it_and_nothing_else(module: str) -> None:
    loaded = importlib.import_module(f"{injections.__name__}.{module}")
    assert callable(loaded.install)
    tree = ast.parse(Path(loaded.__file__ or "").read_text("utf-8"))
    declared = set(injected_by(module))
    # The loader's settings are attributes of the DataLoader, unless it says otherwise.
    named = declared & strings(tree) | ({name for name in declared if SETTINGS[name].keyword})
    assert named == declared
    asked = {
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in ("get", "done", "refuse")
        and getattr(node.func.value, "id", "") == "injected"
        and isinstance(node.args[0], ast.Constant)
    }
    assert asked <= declared


def test_the_loaders_setters_belong_to_declared_settings() -> None:
    from flatout.probe.injections import loader

    assert set(loader._SETTERS) <= set(injected_by("loader"))


def test_no_other_table_names_the_settings() -> None:
    assert {path for path, _ in literal_tables()} == {"probe/settings.py", *OTHERS}


def test_the_mechanics_that_remedies_name_exist(tmp_path: Path) -> None:
    from flatout.runner import Bounds
    from flatout.trials.fix_options import Options
    from flatout.trials.fixing import Fixing
    from flatout.trials.isolation import NAMESPACE, Isolation
    from flatout.trials.journal import begin
    from flatout.trials.progress import ProgressLog
    from flatout.trials.trial_run import TrialSetup

    journal = begin(tmp_path, ["python"])
    setup = TrialSetup(("python",), journal.folder, tmp_path, Bounds(), Isolation(NAMESPACE))
    fixing = Fixing(setup, Options(), journal, ProgressLog(quiet=True))
    assert {spec.mechanics for spec in REMEDIES} == set(fixing.mechanics)
