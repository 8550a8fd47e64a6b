"""A stand-in for a function of C stays unbound in a class."""

import copy
import functools
import json
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from flatout.probe.unbound import Unbound
from flatout.runner.command import injecting_environment


def test_it_is_called_without_self() -> None:
    def double(value: int) -> int:
        """Twice."""
        return 2 * value

    class Holder:
        function = Unbound(double)

    assert Holder().function(4) == 8 and Holder.function.__name__ == "double"


def test_one_that_is_wrapped_again_calls_the_outer_function() -> None:
    def plain() -> str:
        return "plain"

    inner = Unbound(plain)

    @functools.wraps(inner)
    def outer() -> str:
        return f"outer of {inner()}"

    assert Unbound(outer)() == "outer of plain"


def test_it_is_pickled_by_its_name(tmp_path: Path) -> None:
    script = tmp_path / "pickling.py"
    script.write_text(
        "import io, os, pickle, sys, torch\n"
        "found = [pickle.dumps(function) for function in (open, os.open, os.stat, os.listdir)]\n"
        "here = (open, os.open, os.stat, os.listdir)\n"
        "assert all(pickle.loads(text) is function for text, function in zip(found, here))\n"
        "assert type(open) is not type(len)\n"  # it is one of ours
        "sys.stdout.write(' '.join(text.hex() for text in found))\n"
    )
    setting = {"FLATOUT_SETTINGS": json.dumps({"read_from": f"/nowhere={tmp_path}"})}
    done = subprocess.run(
        [sys.executable, str(script)], env=injecting_environment() | setting, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    # Here nothing is patched, and they are Python's own.
    assert [pickle.loads(bytes.fromhex(word)) for word in done.stdout.split()] == [open, os.open, os.stat, os.listdir]


def test_attributes_of_functions_of_c_are_there() -> None:
    """torch.compile asks a function of C for ``__self__``, when it meets one in the code that it compiles."""
    stand_in = Unbound(open)
    assert stand_in.__self__ is open.__self__  # type: ignore[attr-defined]
    assert stand_in.__text_signature__ == open.__text_signature__
    assert copy.copy(stand_in) == open
    with pytest.raises(AttributeError):
        stand_in.no_such_attribute  # noqa: B018
