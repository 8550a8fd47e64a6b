"""The JSON report: its schema, its numbers, and the way back to a diagnosis."""

from __future__ import annotations

import dataclasses
import json
import math
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

from flatout.errors import UsageError
from flatout.report.json_report import diagnosis_from_json, diagnosis_to_json, read_report, render_json
from flatout.report.terminal import render
from flatout.results import Diagnosis, Evidence, Gain, RemedyBundle
from tests.report import diagnoses

SCHEMA = json.loads((Path(__file__).parents[2] / "docs/schema/report.schema.json").read_text("utf-8"))


def check(data: Any) -> None:
    jsonschema.validators.validator_for(SCHEMA)(SCHEMA).validate(data)


def strictly(text: str) -> Any:
    """Parse as a strict reader does: NaN and Infinity are not JSON."""

    def refuse(constant: str) -> float:
        raise AssertionError(f"{constant} in JSON")

    return json.loads(text, parse_constant=refuse)


def described(schema: dict[str, Any], path: str = "") -> list[str]:
    """Paths of the properties that say nothing about themselves."""
    silent = []
    for name, one in schema.get("properties", {}).items():
        target = SCHEMA["$defs"][one["$ref"].rsplit("/", 1)[1]] if "$ref" in one else one
        if not target.get("description"):
            silent.append(f"{path}/{name}")
        silent += described(one, f"{path}/{name}") + described(one.get("items", {}), f"{path}/{name}")
    return silent


def test_the_schema_is_valid_and_describes_every_field() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)
    assert described(SCHEMA) == []
    for name, definition in SCHEMA["$defs"].items():
        assert described(definition, name) == []


@pytest.mark.parametrize("name", diagnoses.ALL)
def test_every_report_is_valid_and_strict_json(name: str) -> None:
    check(strictly(render_json(diagnoses.ALL[name]())))


def test_the_schema_refuses_unknown_classes_missing_parts_and_extra_fields() -> None:
    good = diagnosis_to_json(diagnoses.starved())
    for spoil in (
        lambda data: data.pop("verdict"),
        lambda data: data.update(schema=2),
        lambda data: data["remedies"][0].update({"class": "magic"}),
        lambda data: data["ledger"]["accounts"][0]["children"][0].update(secs=1),
    ):
        bad = json.loads(json.dumps(good))
        spoil(bad)
        with pytest.raises(jsonschema.ValidationError):
            check(bad)


@pytest.mark.parametrize("name", ["starved", "healthy", "without_steps"])
def test_a_diagnosis_comes_back_equal(name: str) -> None:
    diagnosis = diagnoses.ALL[name]()
    assert diagnosis_from_json(json.loads(render_json(diagnosis))) == diagnosis


def test_plans_come_back_equal() -> None:
    plan = RemedyBundle("moderate", {"num_workers": 4}, ("use 4 workers",), Gain(2.0, 1.5, 2.5), 1 << 30, "low")
    planned = dataclasses.replace(diagnoses.starved(), plans=(plan, dataclasses.replace(plan, memory_bytes=None)))
    data = diagnosis_to_json(planned)
    check(data)
    assert diagnosis_from_json(data).plans == planned.plans


def test_a_number_that_is_not_finite_is_null_and_comes_back_as_nan() -> None:
    partly = diagnoses.partly_measured()
    data = diagnosis_to_json(partly)
    assert data["ledger"]["steps"]["rate_sps"] is None
    back = diagnosis_from_json(data)
    assert back.ledger is not None
    assert math.isnan(back.ledger.steps.rate_sps)
    assert render(back).plain == render(partly).plain


def test_numbers_of_numpy_are_written_as_numbers() -> None:
    starved = diagnoses.starved()
    values: Any = {"n": np.int64(3), "share": np.float32(0.5), "bad": np.float64("inf")}
    cause = dataclasses.replace(starved.causes[0], evidence=(Evidence("as measured", values),))
    data = strictly(render_json(dataclasses.replace(starved, causes=(cause,))))
    check(data)
    assert data["causes"][0]["evidence"][0]["values"] == {"n": 3, "share": 0.5, "bad": None}


def test_causes_and_remedies_keep_their_order_and_published_names() -> None:
    data = diagnosis_to_json(diagnoses.starved())
    assert [cause["id"] for cause in data["causes"]] == ["storage_latency", "worker_restart", "device_sync"]
    first = data["remedies"][0]
    assert first["class"] == "identical"
    assert first["memory_bytes"] == 0
    assert first["gain"] == {"predicted": 3.9, "low": 3.1, "high": 4.6}
    assert data["remedies"][2]["memory_bytes"] is None


def test_the_json_is_ascii_also_when_paths_are_not() -> None:
    odd = dataclasses.replace(diagnoses.healthy(), command=("python", "tr\udce9n.py", "数据"))
    text = render_json(odd)
    assert text.isascii()
    assert diagnosis_from_json(json.loads(text)) == odd


def without(key: str) -> dict[str, Any]:
    data = diagnosis_to_json(diagnoses.starved())
    del data[key]
    return data


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("[1, 2]", "not a flatout report"),
        ("{}", "not a flatout report"),
        ('{"schema": 7}', "schema 7"),
        ("{nonsense", "not JSON"),
        (json.dumps(without("causes")), "'causes' is missing"),
        (json.dumps({**without("causes"), "causes": [{"id": "x"}]}), "damaged"),
        (json.dumps({**without("causes"), "causes": 3}), "damaged"),
    ],
)
def test_what_is_not_a_report_is_refused_in_one_line_with_the_file(tmp_path: Path, content: str, said: str) -> None:
    file = tmp_path / "some.json"
    file.write_text(content)
    with pytest.raises(UsageError) as refused:
        read_report(file)
    assert said in str(refused.value)
    assert str(refused.value).startswith(str(file))
    assert "\n" not in str(refused.value)


def test_a_saved_report_reads_back(tmp_path: Path) -> None:
    diagnosis: Diagnosis = diagnoses.starved()
    file = tmp_path / "report.json"
    file.write_text(render_json(diagnosis))
    assert read_report(file) == diagnosis
