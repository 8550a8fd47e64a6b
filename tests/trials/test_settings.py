"""The command that keeps what was proved."""

import re
import shlex

import pytest

from flatout.errors import UsageError
from flatout.probe.settings import combined
from flatout.trials.settings import keep_command, list_settings, read_settings


def test_the_command_reads_back_as_the_same_settings() -> None:
    settings = {"num_workers": 4, "persistent_workers": True, "lr_factor": 2.0, "autocast": "bf16", "in_order": False}
    line = keep_command(["python", "my train.py", "--lr", "0.1"], settings)
    words = shlex.split(line)
    assert words[:2] == ["flatout", "apply"] and words[words.index("--") + 1 :] == [
        "python",
        "my train.py",
        "--lr",
        "0.1",
    ]
    assert read_settings([words[i + 1] for i, word in enumerate(words) if word == "--set"]) == settings


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("foo=4", "there is no setting 'foo'; `flatout apply --list` lists the settings"),
        ("num_workers", "write NAME=VALUE, such as num_workers=4"),
        ("num_workers=many", "is a whole number, 0 to 4,096"),
        ("num_workers=2.5", "is a whole number, 0 to 4,096"),
        ("lr_factor=fast", "is a number, above 0"),
        ("lr_factor=inf", "cannot be inf"),
        ("sample_cache_bytes=99999999999999999999999", "cannot be 99999999999999999999999"),
        ("debugging_off=anomaly_mode,foo", "'foo' is none of anomaly_mode, tracemalloc"),
        ("read_from=/data", "write read_from=REAL=COPY (read below one folder"),
        ("read_from=nowhere=/tmp", "'nowhere' is no folder; write read_from=REAL=COPY"),
        ("read_through=nowhere=/tmp:5", "'nowhere' is no folder; write read_through=REAL=CACHE:BYTES"),
        ("read_through=/data=/ssd:much", "write read_through=REAL=CACHE:BYTES (keep what is read"),
        ("autocast=bf16,fp16", "'bf16,fp16' is none of bf16, fp16"),
        ("num_workers=-1", "cannot be -1"),
        ("batch_size=0", "cannot be 0"),
        ("pin_memory=maybe", "is true or false"),
    ],
)
def test_a_mistake_is_told(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=re.escape(message)):
        read_settings([text])


def test_a_whole_number_can_have_an_exponent() -> None:
    assert read_settings(["sample_cache_bytes=8e9"]) == {"sample_cache_bytes": 8_000_000_000}


def test_only_what_can_be_injected_is_listed_and_read() -> None:
    lines = list_settings()
    assert lines[0] == "num_workers             int    worker processes of the training's DataLoader"
    assert not any("validation_factor" in line for line in lines)
    with pytest.raises(UsageError, match="no setting 'validation_factor'"):
        read_settings(["validation_factor=2"])


def test_a_misspelt_setting_is_answered_with_the_one_that_was_meant() -> None:
    with pytest.raises(UsageError, match=r"no setting 'num_worker'; did you mean num_workers\?$"):
        read_settings(["num_worker=4"])


def test_a_setting_that_is_given_twice_takes_several_values_or_one() -> None:
    assert read_settings(["memoize=a.py:f", "memoize=b.py:g"]) == {"memoize": "a.py:f,b.py:g"}
    assert read_settings(["num_workers=2", "num_workers=2"]) == {"num_workers": 2}
    with pytest.raises(UsageError, match="--set num_workers is given twice, as 2 and as 4: give it once"):
        read_settings(["num_workers=2", "num_workers=4"])


def test_settings_that_take_several_values_get_those_of_all() -> None:
    first = {"call_every": "train.py:log:10", "debugging_off": "tracemalloc", "num_workers": 2}
    second = {"call_every": "train.py:log:20,eval.py:check:2", "debugging_off": "tracemalloc", "num_workers": 4}
    assert combined(first, {}, second) == {
        "call_every": "train.py:log:20,eval.py:check:2",
        "debugging_off": "tracemalloc",
        "num_workers": 4,
    }
    assert combined({"memoize": "a.py:f1"}, {"memoize": "a.py:f2"}) == {"memoize": "a.py:f1,a.py:f2"}
    assert combined({"call_every": "a.py:f:10"}, {"call_every": "a.py:g:10"}) == {"call_every": "a.py:f:10,a.py:g:10"}
