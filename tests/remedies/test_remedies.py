"""Which remedies a diagnosed run is offered, with what prediction and cost."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from flatout.diagnose.causes import CAUSES
from flatout.diagnose.ranking import judge
from flatout.measure.called_functions import CalledFunction
from flatout.measure.fusion import Fusible
from flatout.measure.input_functions import InputFunction
from flatout.measure.loader_stats import ArrayReads, TransformCost
from flatout.measure.measured_run import MeasuredRun
from flatout.measure.validation import ValidationCalls
from flatout.predict.context import Context
from flatout.remedies import REMEDIES, propose
from flatout.remedies.proposal import DATA, IDENTICAL, NUMERICS, OPTIMISATION
from flatout.results import Line, Remedy
from tests.diagnose.views import (
    BATCHES,
    COMPUTE,
    LINE,
    SAMPLES,
    crowded,
    healthy,
    in_numbers,
    make_ledger,
    remote,
    saturated,
    silent,
    small_operators,
    spread,
    starved,
    with_loader,
    without_workers,
)


def offered(view: MeasuredRun) -> dict[str, Remedy]:
    context = Context.of(view)
    return {remedy.id: remedy for remedy in propose(context, judge(context)[0])[0]}


def test_few_workers_are_raised_to_the_smallest_number_that_meets_the_demand() -> None:
    remedy = offered(starved())["num_workers"]
    assert remedy.title == "raise num_workers from 1 to 5"
    assert remedy.gain.predicted == pytest.approx(5.0, rel=0.03)
    assert "num_workers=5" in remedy.how
    assert remedy.memory_bytes is None


def test_a_training_by_recipe_is_offered_keys_of_its_recipe_that_exist() -> None:
    from flatout.recipes.reading import read_recipe

    seen = set()
    for view in (starved(), saturated(), remote(), crowded(), healthy(), without_workers()):
        for remedy in offered(replace(view, by_recipe=True)).values():
            words = remedy.how.split()
            assert words[:4] == ["flatout", "train", "…", "--set"]
            read_recipe("demo", [word for word in words if "=" in word])
            seen.add(remedy.id)
    assert {"num_workers", "local_copy", "faster_decode"} <= seen
    assert "worker_threads" not in seen


def test_memory_is_stated_where_a_worker_was_measured() -> None:
    remedy = offered(starved(usage={"main_cores": 0.1, "worker_bytes": 10**8}, batch_bytes=10**6))["num_workers"]
    assert remedy.memory_bytes == 4 * 10**8 + 8 * 10**6


def test_full_cores_are_offered_cheaper_work_and_not_more_workers() -> None:
    remedies = offered(saturated())
    assert "num_workers" not in remedies
    assert remedies["faster_decode"].gain.predicted > remedies["stored_samples"].gain.predicted > 1


def test_a_remote_store_is_offered_a_local_copy_first() -> None:
    remedies = offered(remote())
    assert next(iter(remedies)) == "local_copy"
    assert "num_workers" in remedies
    assert remedies["num_workers"].cause == "storage_latency"


def test_crowded_cores_are_offered_fewer_threads_with_an_honest_interval() -> None:
    remedy = offered(crowded())["worker_threads"]
    assert remedy.gain.low <= 1.0 < remedy.gain.predicted < remedy.gain.high


def test_no_device_remedy_is_offered_to_a_starved_run() -> None:
    assert not {"mixed_precision", "bigger_batch"} & set(offered(starved(uses_gpu=True)))


def test_mixed_precision_is_an_opportunity_of_a_gpu_that_computes_all_the_time() -> None:
    assert "mixed_precision" in offered(healthy(uses_gpu=True))
    assert offered(healthy()) == {}


def test_an_unexplained_run_is_offered_nothing() -> None:
    assert offered(silent()) == {}


@pytest.mark.parametrize(
    ("view", "id"),
    [
        (without_workers(), "num_workers"),
        (healthy(busy=COMPUTE | {"logging": 0.01}), "log_less"),
        (healthy(gaps={"checkpoint": 1.0}), "checkpoint_less"),
        (healthy(gaps={"validation": 1.0}), "validate_less"),
        (healthy(busy=COMPUTE | {"host_other": 0.01}, cpu=0.008, lines={"host_other": LINE}), "work_to_workers"),
        (
            healthy(persistent_workers=False, worker_starts_in_window=8, gaps={"epoch_boundary": 1.0}),
            "persistent_workers",
        ),
        (
            healthy(busy=COMPUTE | {"device_sync": 0.01}, uses_gpu=True, usage={"device_busy_share": 0.5}),
            "fewer_blocking_reads",
        ),
        (healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}), "bigger_batch"),
        (healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}), "gradient_accumulation"),
        (
            healthy(cpu=0.008, busy={"forward": 0.002, "optimizer": 0.008}, process={"optimizer": "Adam"}),
            "fused_optimizer",
        ),
    ],
)
def test_each_cause_is_offered_its_remedy_with_a_gain(view: MeasuredRun, id: str) -> None:
    remedy = offered(view)[id]
    assert remedy.gain.low <= remedy.gain.predicted <= remedy.gain.high
    assert remedy.gain.predicted > 1.05


def test_moving_work_into_workers_that_are_busy_already_promises_little() -> None:
    busy = COMPUTE | {"host_other": 0.010}
    spare = offered(healthy(busy=busy, cpu=0.008))["work_to_workers"]
    full = offered(healthy(busy=busy, cpu=0.060))
    assert "work_to_workers" not in full or full["work_to_workers"].gain.predicted < spare.gain.predicted


def test_a_validation_that_is_halved_gives_half_of_its_share_back() -> None:
    remedy = offered(healthy(gaps={"validation": 2.06}))["validate_less"]
    assert remedy.gain.predicted == pytest.approx(1 / 0.75, rel=0.03)


def test_remedies_are_listed_by_predicted_gain() -> None:
    for view in (starved(), saturated(), remote(), crowded()):
        gains = [remedy.gain.predicted for remedy in offered(view).values()]
        assert gains == sorted(gains, reverse=True)


def test_each_remedy_answers_known_causes_and_has_a_known_class_and_risk() -> None:
    known = {cause.id for cause in CAUSES}
    for entry in REMEDIES:
        assert set(entry.causes) <= known
        assert entry.semantic_class in (IDENTICAL, NUMERICS, OPTIMISATION, DATA)
        assert entry.risk in ("low", "medium", "high")
    assert len({entry.id for entry in REMEDIES}) == len(REMEDIES)


def test_what_a_trial_needs_is_declared_with_the_remedy() -> None:
    assert [spec.id for spec in REMEDIES if spec.mechanics] == [
        "local_copy",
        "decoded_once",
        "prepared_once",
        "samples_once",
        "samples_memoized",
        "features_once",
    ]
    assert offered(remote())["local_copy"].mechanics == "local_copy"


def test_each_cause_has_a_remedy() -> None:
    answered = {cause for entry in REMEDIES for cause in entry.causes}
    assert answered == {cause.id for cause in CAUSES}


def test_what_had_to_be_assumed_is_said_in_the_basis() -> None:
    remedy = offered(starved(main_cores=None))["num_workers"]
    assert "is taken to keep its threads busy" in remedy.basis


def test_a_run_without_a_loader_is_offered_no_loader_settings() -> None:
    view = MeasuredRun(ledger=make_ledger({"forward": 1.0, "logging": 1.0}), loading=None, cores=2)
    assert set(offered(view)) == {"log_less"}


def pipeline(*parts: tuple[str, float, float, float]) -> tuple[TransformCost, ...]:
    return tuple(TransformCost(*part) for part in parts)


def test_a_colour_transform_before_the_crop_is_told_to_come_after_it() -> None:
    view = saturated(
        cpu_groups={"transform": 0.9, "decode": 0.1},
        item_s=spread(0.010),
        transforms=pipeline(("ColorJitter", 0.008, 100_000, 100_000), ("RandomCrop", 0.0005, 100_000, 10_000)),
    )
    remedies = offered(view)
    assert remedies["crop_first"].title == "put RandomCrop before ColorJitter"
    # 8 ms of 10 ms shrink to a tenth: the fetch keeps 28% of its time, the training process its share of the cores.
    assert 2.0 < remedies["crop_first"].gain.predicted < 1 / 0.28
    assert "cheaper_transform" not in remedies


def test_a_crop_that_comes_first_already_is_not_told_to() -> None:
    view = saturated(
        cpu_groups={"transform": 0.9, "decode": 0.1},
        item_s=spread(0.010),
        transforms=pipeline(("RandomCrop", 0.0005, 100_000, 10_000), ("ColorJitter", 0.008, 10_000, 10_000)),
    )
    remedies = offered(view)
    assert "crop_first" not in remedies
    assert "cheaper_transform" in remedies


def test_two_views_of_a_picture_save_twice() -> None:
    parts = pipeline(("GaussianBlur", 0.004, 100_000, 100_000), ("RandomCrop", 0.0005, 100_000, 10_000))
    given: dict[str, Any] = {"cpu_groups": {"transform": 1.0}, "item_s": spread(0.010)}
    once = offered(saturated(**given, transforms=parts))["crop_first"]
    twice = offered(saturated(**given, transforms=tuple(replace(part, calls=2.0) for part in parts)))["crop_first"]
    assert twice.gain.predicted > 1.4 * once.gain.predicted


def test_files_that_passes_read_again_are_kept_as_far_as_memory_allows() -> None:
    view = remote(
        epochs_started=3,
        bytes_read_per_sample=100_000.0,
        cpu_groups={"decode": 1.0},
        usage={"available_bytes": 8 << 30},
    )
    kept = offered(view)["cache_files"]
    assert kept.settings == {"file_cache_bytes": 1 << 30, "persistent_workers": True}
    assert kept.gain.low <= 1.0 < kept.gain.predicted < kept.gain.high
    assert "cache_files" not in offered(remote(epochs_started=0, bytes_read_per_sample=100_000.0))


def test_a_dataloader_is_never_wrapped_in_a_dataloader() -> None:
    own = MeasuredRun(ledger=make_ledger({"forward": 0.6, "batch_wait": 0.4}), loading=None, cores=4)

    def ids(run: MeasuredRun) -> set[str]:
        context = Context.of(run)
        return {remedy.id for remedy in propose(context, judge(context)[0])[0]}

    assert "batches_ahead" in ids(own)
    assert "batches_ahead" not in ids(replace(own, iterates_loader=True))


def test_compiling_is_predicted_from_what_the_traced_operators_pass_on() -> None:
    """Of a step of 10 ms, 2 ms likely and 4 ms at the most; the optimizer keeps its tenth of 1 ms around operators."""
    operators = small_operators(0.001, fusible=Fusible(0.002, 0.004, 200 << 20, 40.0))
    remedy = offered(replace(healthy(cpu=0.001, process={"compiled": False}), operators=operators))["compile_model"]
    assert remedy.gain.predicted == pytest.approx(10.3 / (10.3 - 2.0 - 0.45), rel=0.02)
    assert remedy.basis.startswith(
        "what 40 pointwise operators of the model pass to one another in the traced step: 200 MiB, which takes 4.0 ms, "
        "and half of the 900 µs that pass around them is assumed to go"
    )


def test_a_step_with_nothing_to_fuse_gains_nothing_by_compiling() -> None:
    view = replace(healthy(process={"compiled": False}), operators=small_operators(0.0))
    assert offered(view)["compile_model"].gain.high < 1.05


def test_without_a_trace_no_gain_of_compiling_is_predicted_but_a_trial_may_show_one() -> None:
    gain = offered(healthy(process={"compiled": False}))["compile_model"].gain
    assert gain.predicted == pytest.approx(1.0, abs=0.01)
    assert gain.high > 1.3


RESIZED = (
    TransformCost("Resize", 0.004, 2e5, 5e4),
    TransformCost("CenterCrop", 0.0001, 5e4, 4e4),
    TransformCost("RandomHorizontalFlip", 0.0001, 4e4, 4e4),
)


def test_linear_interpolation_is_offered_for_calls_that_do_not_ask_for_it() -> None:
    def found(source: str) -> dict[str, Remedy]:
        line = Line("/home/me/data.py", 9, "__getitem__", source, 1000.0)
        scipy = {"packages": {"transform": "scipy"}, "lines_of_group": {"transform": (line,)}}
        return offered(saturated(cpu_groups={"transform": 0.9, "decode": 0.1}, **scipy))

    spline = found("image = ndimage.shift(image, (0, dy, dx), mode='nearest')")["linear_interpolation"]
    assert spline.title.endswith("in shift") and spline.semantic_class == DATA and spline.gain.predicted > 1.3
    assert "linear_interpolation" not in found("image = ndimage.shift(image, (0, dy, dx), order=1)")
    assert "linear_interpolation" not in found("image = ndimage.gaussian_filter(image, 2)")


OF_MONAI = (
    TransformCost("monai.LoadImaged", 0.030, 0, 0, repeats=True),
    TransformCost("monai.Spacingd", 0.010, 0, 0, repeats=True),
    TransformCost("monai.RandFlipd", 0.001, 0, 0),
    TransformCost("monai.ScaleIntensityd", 0.001, 0, 0, repeats=True),
)


def test_items_of_monai_are_kept_up_to_its_first_random_transform() -> None:
    several = {"epochs_started": 1, "dataset_len": 100, "usage": {"available_bytes": 8 << 30}}
    groups = {"cpu_groups": {"decode": 0.4, "transform": 0.5, "other": 0.1}}
    found = offered(saturated(**several, **groups, transforms=OF_MONAI))
    assert found["prepared_once"].title == "prepare each item once, up to Spacingd"
    assert found["prepared_once"].gain.predicted > 1.2 and "CacheDataset" in found["prepared_once"].how
    assert found["prepared_once"].settings == {"sample_cache_bytes": 4 << 30}
    assert not {"decoded_once", "cheaper_transform"} & found.keys()
    patches = {"layout": ("float32 [4, 1, 64, 64, 64]", "int64 [4, 64, 64, 64]"), "cpu_groups": {"transform": 1.0}}
    assert "cheaper_transform" not in offered(saturated(**several, **patches, transforms=OF_MONAI))
    assert "prepared_once" not in offered(saturated(**several, **groups, transforms=OF_MONAI[2:]))
    assert "prepared_once" not in offered(saturated(**(several | {"epochs_started": 0}), **groups, transforms=OF_MONAI))


def test_pictures_are_kept_as_their_deterministic_transforms_leave_them() -> None:
    several = {"epochs_started": 1, "dataset_len": 10_000, "usage": {"available_bytes": 8 << 30}}
    groups = {"cpu_groups": {"decode": 0.4, "transform": 0.5, "other": 0.1}}
    decoded = offered(saturated(**several, **groups, transforms=RESIZED[2:]))["decoded_once"]
    resized = offered(saturated(**several, **groups, transforms=RESIZED))["decoded_once"]
    assert decoded.title.startswith("decode each file once") and resized.title.startswith("decode and resize each")
    assert resized.gain.predicted > decoded.gain.predicted > 1.05
    assert resized.memory_bytes == 10_000 * 40_000 * 3 == decoded.memory_bytes


@pytest.mark.parametrize(
    ("layout", "type"),
    [
        (("float32 [4, 3, 512, 512]", "int64 [4]"), "uint8"),
        (("int64 [4]", "float32 [4, 4096, 64]"), "float16"),
        (("float64 [4, 3, 512, 512]",), "float32"),
        (("int64 [4, 100000]",), "int32"),
        (("uint8 [4, 3, 512, 512]", "float32 [4]"), None),
    ],
)
def test_large_batches_are_offered_a_type_that_holds_their_values(layout: tuple[str, ...], type: str | None) -> None:
    large = {"wait": 0.020, "collate_s": np.full(BATCHES, 0.045), "batch_bytes": 50_000_000}
    remedy = offered(saturated(**large, layout=layout)).get("smaller_samples")
    assert (remedy.title if remedy else None) == (
        f"hand over small types ({type}), convert on the device" if type else None
    )


def slices_of(arrays: ArrayReads, **changes: Any) -> dict[str, Remedy]:
    """Remedies of a run whose samples are slices of volumes of 64 slices, in its first pass."""
    given: dict[str, Any] = {
        "layout": ("float32 [32, 1, 128, 128]",), "arrays": arrays, "dataset_len": 1000, "epochs_started": 0,
        "bytes_read_per_sample": 1e6, "batch_bytes": SAMPLES * 128 * 128 * 4, "usage": {"available_bytes": 8 << 30},
        "cpu_groups": {"decompress": 0.8, "other": 0.2},
    }  # fmt: skip
    return offered(saturated(**{**given, **changes}))


PACKED = ArrayReads("h5py", 64.0 * 128 * 128, 64.0 * 128 * 128 * 2, 0.02, 1, True)


def test_a_volume_that_is_unpacked_for_each_of_its_slices_is_stored_once() -> None:
    found = slices_of(PACKED)
    assert found["decoded_once"].memory_bytes == pytest.approx(1000 * 128 * 128 * 2, rel=0.01)
    assert found["decoded_once"].gain.predicted > 1.2
    assert "mapped_arrays" not in found  # it is packed in its file


def test_arrays_that_lie_as_they_are_in_their_files_can_be_mapped() -> None:
    found = slices_of(PACKED, bytes_read_per_sample=PACKED.bytes)
    assert found["mapped_arrays"].settings == {"mapped_arrays": True}


def test_pictures_that_are_no_jpegs_are_not_decoded_at_a_smaller_scale() -> None:
    run = saturated()
    assert run.loading is not None
    for extensions, settings in (({}, True), ({".jpg": 4, ".png": 1}, True), ({".png": 4, ".py": 1}, False)):
        storage = replace(run.loading.storage, extensions=extensions)
        remedy = offered(replace(run, loading=replace(run.loading, storage=storage)))["faster_decode"]
        assert bool(remedy.settings) is settings and ("draft" in remedy.how) is settings


def test_pictures_are_decoded_at_the_scale_that_their_samples_need() -> None:
    """12 million values of a picture, 150,528 of a sample: 79 times as many, so that both sides can be halved."""
    pictures = ArrayReads("PIL", 12e6, 12e6, 0.05, 1, volumes=False)
    run = saturated(arrays=pictures, layout=(f"float32 [{SAMPLES}, 3, 224, 224]",), batch_bytes=1 << 20)
    found = offered(run)
    scaled = found["faster_decode"]
    assert scaled.settings == {"jpeg_short_side": 448} and "(448, 448)" in scaled.how
    assert "1 in 4" in scaled.basis
    assert 1.1 < scaled.gain.predicted < found["smaller_files"].gain.predicted
    # Ten times as many: with the sides halved, they would be shorter than twice those of a sample.
    near = replace(pictures, bytes=1.5e6, values=1.5e6)
    unscaled = saturated(arrays=near, layout=(f"float32 [{SAMPLES}, 3, 224, 224]",), batch_bytes=1 << 20)
    assert offered(unscaled)["faster_decode"].settings == {"jpeg_short_side": 256}
    usual = offered(saturated())["faster_decode"]
    assert usual.settings == {"jpeg_short_side": 256}


def test_less_is_decoded_of_pictures_only() -> None:
    assert "faster_decode" in offered(saturated(packages={"decode": "PIL"}))
    for package in ("soundfile", "pyarrow", "json"):
        assert "faster_decode" not in offered(saturated(packages={"decode": package}))


def test_what_a_stream_reads_again_may_be_kept() -> None:
    run = saturated(usage={"available_bytes": 8 << 30}, epochs_started=0)
    assert run.loading is not None
    for opens, kept in ((1.0, False), (3.0, True)):
        storage = replace(run.loading.storage, files_per_sample=1.0, opens_per_file=opens, files=200)
        settings = replace(run.loading.settings, dataset_len=None)
        found = offered(replace(run, loading=replace(run.loading, storage=storage, settings=settings)))
        assert ("decoded_once" in found) is kept


def calling(outer: str, **changes: Any) -> MeasuredRun:
    """Fetches that call ``outer``, which calls ``load``."""
    called = (
        InputFunction("/home/me/data.py", f"Pages.{outer}", 1.0, 1.0, (0.9, 0.0), 1.0),
        InputFunction("/home/me/data.py", "Pages.load", 0.9, 0.0, (0.0, 0.0), 2.0),
    )
    return saturated(usage={"available_bytes": 8 << 30}, batch_bytes=1 << 20, called=called, **changes)


def test_what_a_stream_calls_is_memoized_not_the_stream() -> None:
    remedy = offered(calling("__iter__", epochs_started=2, dataset_len=1000))["samples_memoized"]
    assert remedy.settings is not None and remedy.settings["memoize"] == "me/data.py:Pages.load"
    assert remedy.gain.predicted > 2


def test_within_a_first_pass_calls_by_index_do_not_repeat() -> None:
    run = calling("__getitem__", epochs_started=0)
    remedy = offered(run)["samples_memoized"]
    assert remedy.settings is not None and remedy.settings["memoize"] == "me/data.py:Pages.load"
    assert remedy.gain.predicted == pytest.approx(1.0) and remedy.gain.high > 2
    assert run.loading is not None
    functions = replace(run.loading.functions, called=run.loading.functions.called[:1])
    assert "samples_memoized" not in offered(replace(run, loading=replace(run.loading, functions=functions)))


@pytest.mark.parametrize(("seconds", "every"), [(0.004, 10), (0.030, 50)])
def test_what_reports_is_called_less_often_the_more_it_takes(seconds: float, every: int) -> None:
    called = {"host_other": [CalledFunction("/home/me/train.py", "Journal.write", seconds * BATCHES)]}
    view = replace(healthy(busy=COMPUTE | {"host_other": seconds}), called_functions=called)
    found = offered(view)["report_less"]
    assert found.settings == {"call_every": f"me/train.py:Journal.write:{every}"}
    assert f"in every {every}th step" in found.title


def test_samples_of_a_few_numbers_are_to_be_taken_a_batch_at_a_time() -> None:
    view = in_numbers(without_workers())
    remedy = offered(view)["whole_batches"]
    # A tenth of 40 ms of fetching is left beside 10 ms of computing.
    assert remedy.gain.predicted == pytest.approx(50 / 14, rel=0.05) and remedy.settings == {"samples_at_once": True}
    assert "BatchSampler" in remedy.how and remedy.semantic_class == IDENTICAL
    for others in ({"batch_bytes": 50_000_000}, {"samples": BATCHES * 32}, {"cpu_groups": {"decode": 1.0}}):
        assert "whole_batches" not in offered(with_loader(view, **others))


@pytest.mark.parametrize(
    "name",
    [
        *("Samples.get_train_loader", "random_training_set", "Feeder.next_batch", "make_inputs", "to_tensor"),
        *("Memory.add", "ReplayBuffer.push", "append_sample", "Env.step"),
    ],
)
def test_what_makes_a_loader_or_a_batch_reports_nothing(name: str) -> None:
    called = {"host_other": [CalledFunction("/home/me/data.py", name, 0.004 * BATCHES)]}
    view = replace(healthy(busy=COMPUTE | {"host_other": 0.004}), called_functions=called)
    assert "report_less" not in offered(view)


def test_what_changes_tensors_in_place_reports_nothing() -> None:
    called = [
        CalledFunction("/home/me/train.py", name, 0.004 * BATCHES, name == "soft_update")
        for name in ("soft_update", "log")
    ]
    view = replace(healthy(busy=COMPUTE | {"host_other": 0.004}), called_functions={"host_other": called})
    assert offered(view)["report_less"].settings == {"call_every": "me/train.py:log:10"}


def test_what_the_step_takes_reports_nothing() -> None:
    called = [CalledFunction("/home/me/train.py", "scores", 0.008 * BATCHES, feeds_step=True)]
    view = replace(healthy(busy=COMPUTE | {"host_other": 0.008}), called_functions={"host_other": called})
    assert "report_less" not in offered(view)


def test_validation_that_keeps_gradients_is_to_leave_them_out() -> None:
    view = healthy(gaps={"validation": 1.0})
    kept = offered(replace(view, validation_calls=ValidationCalls(0.8, 1.0)))["validate_without_gradients"]
    assert kept.semantic_class == IDENTICAL and kept.gain.low <= 1.0 < kept.gain.predicted < 1.1
    assert "validate_without_gradients" not in offered(replace(view, validation_calls=ValidationCalls(0.8, 0.0)))
