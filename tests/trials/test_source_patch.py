"""A patch of the script's own DataLoader call."""

import ast

import pytest

from flatout import extras
from flatout.errors import UsageError
from flatout.trials.source_patch import left_out, named_values, patched

SETTINGS = {"num_workers": 4, "persistent_workers": True, "autocast": "bf16"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("loader = DataLoader(data, 8)\n", "loader = DataLoader(data, 8, num_workers=4, persistent_workers=True)\n"),
        (
            "loader = data.DataLoader(\n    make(x), num_workers=1,  # é few\n)\n",
            "loader = data.DataLoader(\n    make(x), num_workers=4, persistent_workers=True,  # é few\n)\n",
        ),
        (
            "loader = DataLoader(a, shuffle=(True))\nval = DataLoader(b)\n",
            "loader = DataLoader(a, shuffle=(True), num_workers=4, persistent_workers=True)\nval = DataLoader(b)\n",
        ),
        (
            "for x in DataLoader(a, num_workers=int(os.cpu_count() / 2), persistent_workers=False): pass\n",
            "for x in DataLoader(a, num_workers=4, persistent_workers=True): pass\n",
        ),
        (
            "loader = DataLoader(\n    data,\n    8,\n)\n",
            "loader = DataLoader(\n    data,\n    8,\n    num_workers=4,\n    persistent_workers=True,\n)\n",
        ),
        (
            "loader = DataLoader(\n    data,  # all of it\n    num_workers=(1 +\n        1)  # two\n)\n",
            "loader = DataLoader(\n    data,  # all of it\n    num_workers=4,\n    persistent_workers=True  # two\n)\n",
        ),
        (
            "loader = DataLoader(data, \\\n    8)\n",
            "loader = DataLoader(data, \\\n    8, num_workers=4, persistent_workers=True)\n",
        ),
        (
            "loader = DataLoader( (data) )  # as it is\n",
            "loader = DataLoader( (data), num_workers=4, persistent_workers=True )  # as it is\n",
        ),
        (
            "self.val_loader: Any = DataLoader(b)\nself.loader = DataLoader(a, 8, True, None, None, 2)\n",
            "self.val_loader: Any = DataLoader(b)\n"
            "self.loader = DataLoader(a, 8, True, None, None, 4, persistent_workers=True)\n",
        ),
        ("f(DataLoader(data))\r\n", "f(DataLoader(data, num_workers=4, persistent_workers=True))\r\n"),
    ],
)
def test_keywords_are_set_or_added(before: str, after: str) -> None:
    changed = patched(before, SETTINGS)
    assert changed == after
    ast.parse(changed)


@pytest.mark.parametrize(
    "source",
    [
        "a = DataLoader(x)\nb = DataLoader(y)\n",  # which one?
        "a = DataLoader(x, **options)\n",  # what do the options hold?
        "a = DataLoader(*parts)\n",
        "a = make_loader(x)\n",
        "a = DataLoader(\n",
    ],
)
def test_where_it_is_not_clear_there_is_no_patch(source: str) -> None:
    assert patched(source, SETTINGS) is None


def test_without_settings_of_a_loader_there_is_no_patch() -> None:
    assert patched("a = DataLoader(x)\n", {"autocast": "bf16"}) is None


def test_without_the_extra_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(extras.EXTRAS, "config", ("no_such_package",))
    with pytest.raises(UsageError, match="pip install 'flatout\\[config\\]'"):
        patched("a = DataLoader(x)\n", SETTINGS)


@pytest.mark.parametrize(
    ("source", "said"),
    [
        (
            "parser.add_argument('--num-workers', type=int)\nloader = DataLoader(d, num_workers=a.num_workers)\n",
            "The DataLoader takes num_workers from a.num_workers: add --num-workers 4 to the command.",
        ),
        ("loader = DataLoader(d, 8, num_workers=N)\n", "The DataLoader takes num_workers from N: set that to 4."),
    ],
)
def test_a_value_from_a_name_is_set_at_its_origin_and_not_patched_over(source: str, said: str) -> None:
    assert patched(source, SETTINGS) is None
    assert named_values(source, SETTINGS) == [said]
    assert named_values("loader = DataLoader(d, num_workers=0)", SETTINGS) == []


@pytest.mark.parametrize(
    ("source", "each_pass"),
    [
        ("for epoch in range(9):\n    for x in DataLoader(d, 8):\n        step(x)\n", True),
        ("for epoch in range(9):\n    train(DataLoader(d, 8))\n", True),
        ("while True:\n    loader = DataLoader(d, 8)\n    for x in loader:\n        step(x)\n", True),
        ("loader = DataLoader(d, 8)\nfor epoch in range(9):\n    for x in loader:\n        step(x)\n", False),
        ("for x in DataLoader(d, 8):\n    step(x)\n", False),
        # The passes over it are further inside, or cannot be seen.
        ("for fold in f:\n    d = DataLoader(d, 8)\n    for e in many:\n        for x in d:\n            y\n", False),
        ("for fold in folds:\n    train(DataLoader(d, 8))\n", False),
    ],
)  # fmt: skip
def test_workers_of_a_loader_that_each_pass_makes_anew_are_not_kept(source: str, each_pass: bool) -> None:
    kept = "" if each_pass else ", persistent_workers=True"
    assert patched(source, SETTINGS) == source.replace("8)", f"8, num_workers=4{kept})")
    assert ("before the loop over passes" in left_out(source, SETTINGS)) == each_pass
    assert (patched(source, {"persistent_workers": True}) is None) == each_pass
