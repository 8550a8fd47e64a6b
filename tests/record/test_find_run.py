import shutil

import pytest

from flatout.errors import RecordError
from flatout.record import find_run, list_runs
from tests.record.synthetic import RunBuilder


@pytest.fixture
def folder(tmp_path):
    for day, id in ((3, "resnet-c"), (1, "resnet-a"), (2, "vit-b")):
        run = RunBuilder(tmp_path / "runs", id)
        run.process()
        run.write(started=f"2026-11-0{day}T00:00:00Z", end_ns=1_000_000_000_000_000 + day * 10**9)
    return tmp_path / "runs"


def test_runs_are_listed_oldest_first_with_their_facts(folder):
    entries = list_runs(folder)
    assert [entry.id for entry in entries] == ["resnet-a", "vit-b", "resnet-c"]
    assert entries[2].recorded_s == 3.0 and entries[2].command == ("python", "train.py")


def test_an_absent_folder_has_no_runs(tmp_path):
    assert list_runs(tmp_path / "none") == ()


def test_a_damaged_run_is_listed_as_not_readable(folder):
    (folder / "vit-b" / "run.json").write_text("{")
    assert [entry.id for entry in list_runs(folder) if not entry.readable] == ["vit-b"]


def test_other_folders_are_not_runs(folder):
    (folder / "notes").mkdir()
    assert len(list_runs(folder)) == 3


def test_the_end_of_an_id_means_its_run_if_no_other_ends_so(folder):
    assert find_run("c", folder) == folder / "resnet-c"
    another = RunBuilder(folder, "vit-c")
    another.process()
    another.write()
    with pytest.raises(RecordError, match=r"2 runs end in 'c'.*resnet-c") as raised:
        find_run("c", folder)
    assert "vit-c" in str(raised.value)


def test_the_beginning_of_an_id_means_its_run_if_no_other_begins_so(folder):
    assert find_run("vit-", folder) == folder / "vit-b"
    with pytest.raises(RecordError, match=r"2 runs begin with 'resnet'.*resnet-c"):
        find_run("resnet", folder)
    with pytest.raises(RecordError, match="no run 'vit'"):
        find_run("vit", folder)  # too short to be meant


def test_copies_of_a_run_are_meant_by_the_names_of_their_folders(folder):
    """Their records have one id."""
    shutil.copytree(folder / "vit-b", folder / "vit-copy")
    assert find_run("vit-c", folder) == folder / "vit-copy"
    with pytest.raises(RecordError, match=r"2 runs begin with 'vit-'.* vit-copy and vit-b"):
        find_run("vit-", folder)


def test_an_empty_name_is_refused(folder):
    with pytest.raises(RecordError, match="empty"):
        find_run("", folder)


@pytest.mark.parametrize("name", [None, "latest"])
def test_the_latest_run_is_the_one_that_started_last(folder, name):
    assert find_run(name, folder) == folder / "resnet-c"


def test_a_run_is_found_by_id_and_by_path(folder):
    assert find_run("vit-b", folder) == folder / "vit-b"
    assert find_run(str(folder / "vit-b"), folder / "elsewhere") == folder / "vit-b"


def test_a_mistyped_id_names_the_nearest(folder):
    with pytest.raises(RecordError, match=r"no run 'resnet-d' in .*: the nearest are resnet-"):
        find_run("resnet-d", folder)


def test_a_path_without_a_run_is_refused(folder, tmp_path):
    with pytest.raises(RecordError, match="is not a run folder"):
        find_run(tmp_path, folder)


def test_no_runs_yet_says_how_to_record_one(tmp_path):
    with pytest.raises(RecordError, match=r"`flatout profile -- python train\.py`"):
        find_run(None, tmp_path)
