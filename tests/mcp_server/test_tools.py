"""The tools as a client in this process sees them: what they take and answer, and what they refuse."""

from __future__ import annotations

import functools
import json
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="the extra mcp is not installed")

import anyio
from mcp import Client

from flatout.mcp_server.answers import MOST_BYTES, answer, shortened
from flatout.mcp_server.digests import sentence
from flatout.mcp_server.jobs import CANCELLED, OUT_OF_TIME, Job, Jobs
from flatout.mcp_server.server import build
from tests.record.rich import rich_run

TAKES = {
    "machine": "assume deadline_s",
    "report": "deadline_s folder run",
    "explain": "cause! deadline_s",
    "read_log": "deadline_s folder paths!",
    "profile": "command! deadline_s folder seconds",
    "memory": "command! deadline_s folder",
    "fix": "allow budget_s command! deadline_s folder",
    "try_change": "budget_s command! deadline_s environment folder other_command patch settings",
    "batch_size": "budget_s command! deadline_s folder",
    "plan": "after command deadline! deadline_s epochs! folder folds gpu look_s price reserve run steps_per_epoch",
    "compare": "a! b! deadline_s folder",
    "stage": "deadline_s destination! dry_run folder source!",
    "recipes": "deadline_s folder recipe section",
    "train": "data deadline_s epochs folder max_time output recipe! settings",
    "infer": "data! deadline_s folder output! training!",
    "status": "job! wait_s",
    "result": "job!",
    "cancel": "job!",
}
COMMAND = "python no-such-script.py"
HOSTILE: list[tuple[str, dict[str, Any], str]] = [
    ("profile", {"command": ""}, "command is empty"),
    ("profile", {"command": []}, "command is empty"),
    ("profile", {"command": "python 'x.py"}, "No closing quotation"),
    ("profile", {"command": "python x.py | sh"}, "needs a shell"),
    ("profile", {"command": "x" * 1_000_000}, "longer than"),
    ("profile", {"command": ["python"] * 501}, "at most 500"),
    ("profile", {"command": ["python", "a\0b"]}, "null character"),
    ("profile", {"command": 3}, "command is 3, but must be a text or a list of texts"),
    ("profile", {"command": [3]}, "command is [3], but must be a text or a list of texts"),
    ("profile", {}, "the argument command is missing"),
    ("profile", {"command": COMMAND, "bogus": 1}, 'no argument "bogus"'),
    ("profile", {"command": COMMAND, "second": 1}, "did you mean seconds?"),
    ("profile", {"command": COMMAND, "seconds": True}, "seconds is true, but must be a number"),
    ("profile", {"command": COMMAND, "seconds": "five"}, 'seconds is "five", but must be a number'),
    ("profile", {"command": COMMAND, "deadline_s": []}, "deadline_s is [], but must be a number"),
    ("profile", {"command": ["python", "\ud800"]}, "half a character"),
    ("try_change", {"command": COMMAND, "settings": {"a": 1}}, "but must be an object of texts"),
    ("try_change", {"command": COMMAND, "settings": {"a": "x" * 1_000_000}}, "an argument has"),
    ("plan", {"deadline": "5m", "epochs": 1.5, "run": "latest"}, "epochs is 1.5, but must be a whole number"),
    ("plan", {"deadline": "5m", "epochs": True, "run": "latest"}, "epochs is true"),
    ("report", {"run": "x" * 1_000_000}, "run has 1,000,000 characters; at most 100,000"),
    ("recipes", {"recipe": "/etc/passwd"}, "outside"),
    ("recipes", {"recipe": "../secret.yaml"}, "outside"),
    ("explain", {"cause": "x" * 1_000_000}, "cause has 1,000,000 characters"),
    ("machine", {"assume": "x" * 100_000}, "no figures of this GPU are known"),
    ("status", {"job": "x", "wait_s": -1}, "wait_s is -1, but must be a number from 0 to 45"),
    ("profile", {"command": COMMAND, "seconds": -1}, "seconds is -1"),
    ("profile", {"command": COMMAND, "seconds": "nan"}, "seconds"),
    ("profile", {"command": COMMAND, "deadline_s": 0}, "deadline_s is 0"),
    ("profile", {"command": COMMAND, "folder": ".."}, "outside"),
    ("profile", {"command": COMMAND, "folder": "/"}, "outside"),
    ("profile", {"command": COMMAND, "folder": "outside-by-link"}, "outside"),
    ("profile", {"command": COMMAND, "folder": "none"}, "no such folder"),
    ("profile", {"command": COMMAND, "folder": "a\0b"}, "no such folder"),
    ("memory", {"command": COMMAND, "folder": "../.."}, "outside"),
    ("fix", {"command": COMMAND, "budget_s": -5}, "budget_s is -5"),
    ("fix", {"command": COMMAND, "allow": ["--work-dir=/"]}, "begin with a dash"),
    ("try_change", {"command": COMMAND}, "no change to judge"),
    ("try_change", {"command": COMMAND, "patch": " "}, "patch has"),
    ("try_change", {"command": COMMAND, "settings": {"--patch": "/etc/passwd"}}, "begin with a dash"),
    ("batch_size", {"command": COMMAND, "budget_s": 1e9}, "at most 30 days"),
    ("report", {"run": "../../etc"}, "outside"),
    ("report", {"run": "--output=/etc/x"}, "begin with a dash"),
    ("explain", {"cause": "-v"}, "begin with a dash"),
    ("read_log", {"paths": ["/etc/passwd"]}, "outside"),
    ("read_log", {"paths": []}, "paths"),
    ("plan", {"deadline": "5m", "epochs": 3}, "give either run"),
    ("plan", {"deadline": "5m", "epochs": 0, "run": "latest"}, "epochs"),
    ("plan", {"deadline": "5m", "epochs": 3, "run": "/etc/hosts"}, "outside"),
    ("compare", {"a": "/etc", "b": "latest"}, "outside"),
    ("compare", {"a": "latest", "b": "--json"}, "begin with a dash"),
    ("stage", {"source": "--delete", "destination": "d"}, "begin with a dash"),
    ("stage", {"source": "s3://b/p", "destination": "/etc"}, "outside"),
    ("train", {"recipe": "--help"}, "begin with a dash"),
    ("train", {"recipe": "demo", "output": "../x"}, "outside"),
    ("infer", {"training": "/", "data": "d", "output": "o.csv"}, "outside"),
    ("infer", {"training": "t", "data": "d", "output": "../o.csv"}, "outside"),
    ("status", {"job": "profile-1"}, "not known"),
    ("status", {"job": "x", "wait_s": 1e9}, "wait_s"),
    ("cancel", {"job": "x" * 100_000}, "not known"),
    ("machine", {"assume": "A11"}, "did you mean"),
    ("no_such_tool", {}, "there is no tool"),
    ("profil", {}, "did you mean profile?"),
    ("x" * 100_000, {}, "there is no tool"),
]


def in_process(root: Path, use: Callable[[Client, Jobs], Awaitable[None]]) -> None:
    """Use a server in this process, on this folder."""

    async def main() -> None:
        jobs = Jobs()
        async with Client(build(root, jobs)) as client:
            await use(client, jobs)
        assert not any(job.running for job in jobs.all())

    anyio.run(functools.partial(main))


async def called(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The answer of a tool, which must not be an error."""
    answer = await client.call_tool(tool, arguments)
    text = "".join(getattr(part, "text", "") for part in answer.content)
    assert not answer.is_error, text
    assert len(text.encode()) <= MOST_BYTES
    return dict(answer.structured_content or {})


async def ended(client: Client, answer: dict[str, Any]) -> dict[str, Any]:
    """The last answer on a job, by following what each names as the next step."""
    while answer["state"] == "running":
        answer = await called(client, answer["next_step"]["tool"], **answer["next_step"]["arguments"])
    return answer


def test_each_tool_says_what_it_takes_gives_and_does(tmp_path: Path) -> None:
    async def use(client: Client, _: Jobs) -> None:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        taken = {
            name: " ".join(
                sorted(
                    f"{one}{'!' * (one in tool.input_schema.get('required', []))}"
                    for one in tool.input_schema["properties"]
                )
            )
            for name, tool in tools.items()
        }
        assert taken == TAKES
        for name, tool in tools.items():
            assert tool.description and tool.annotations, name
            assert {"next_step"} <= set((tool.output_schema or {})["properties"]), name
        reads = {name for name, tool in tools.items() if tool.annotations and tool.annotations.read_only_hint}
        assert reads == {"machine", "report", "explain", "read_log", "recipes", "status", "result"}

    in_process(tmp_path, use)


def test_what_is_wrong_is_said_and_nothing_is_started(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "outside-by-link").symlink_to("/")

    async def use(client: Client, jobs: Jobs) -> None:
        for tool, arguments, words in HOSTILE:
            answer = await client.call_tool(tool, arguments)
            text = "".join(getattr(part, "text", "") for part in answer.content)
            seen = (tool, str(arguments)[:200], text[:500])
            assert answer.is_error and words in text and len(text) < 2000 and "\n" not in text, seen
            assert "http" not in text, seen
        assert jobs.all() == []

    in_process(tmp_path / "root", use)
    assert [path.name for path in tmp_path.rglob("*")] == ["root", "outside-by-link"]


def test_a_mistake_in_the_command_arrives_with_the_command_lines_own_words(tmp_path: Path) -> None:
    async def use(client: Client, _: Jobs) -> None:
        answer = await ended(client, await called(client, "profile", command="no-such-program"))
        assert answer["state"] == "failed" and answer["exit_code"] == 127 and answer["next_step"] is None
        assert "no-such-program" in answer["summary"]
        wrong = await client.call_tool("explain", {"cause": "nonsense"})
        assert wrong.is_error and "nonsense" in wrong.content[0].text  # type: ignore[union-attr]

    in_process(tmp_path, use)


def fits(step: dict[str, Any], tools: dict[str, Any]) -> bool:
    """Whether a next step can be called as it is, once the caller has added what it needs."""
    schema = tools[step["tool"]].input_schema
    given = {*step["arguments"], *step["needs"]}
    typed = all(
        isinstance(value, str | int | float) and value != "" for value in step["arguments"].values()
    )  # each of these tools takes such only
    return given <= set(schema["properties"]) and set(schema.get("required", [])) <= given and typed


def finished(tool: str, printed: str = "", messages: str = "", code: int = 0, why: str = "") -> Job:
    """A job of a tool that has ended and printed this."""
    process = subprocess.Popen([sys.executable, "-c", f"raise SystemExit({code})"])
    process.wait()
    out, err = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # noqa: SIM115 (end with the job)
    for file, text in ((out, printed), (err, messages)):
        file.write(text.encode("utf-8", "surrogateescape"))
        file.flush()
    return Job(f"{tool}-1", tool, [], Path("/w"), 12.0, process, out, err, why_ended=why)


@pytest.mark.parametrize("state", ["done", "failed", CANCELLED, OUT_OF_TIME])
@pytest.mark.parametrize("tool", [name for name in TAKES if name != "machine"])
def test_every_next_step_is_a_call_that_its_tool_takes(tmp_path: Path, tool: str, state: str) -> None:
    printed = json.dumps({"causes": [{"id": "slow_loss"}], "folder": "outputs/1", "submission": None})
    why = state if state in (CANCELLED, OUT_OF_TIME) else ""
    job = finished(tool, printed if state != "failed" else "", code=state == "failed", why=why)
    found = answer(job).model_dump()
    assert found["state"] == state and found["spent_s"] >= 0 and found["left_s"] is not None

    async def use(client: Client, _: Jobs) -> None:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert found["next_step"] is None or fits(found["next_step"], tools), found["next_step"]
        assert found["next_step"] or (tool, state) not in (("profile", "done"), ("train", "done"))
        there = await called(client, "machine", deadline_s=30)
        assert fits(there["next_step"], tools) and there["next_step"]["needs"] == ["command"]
        assert there["state"] == "done" and 0 < there["left_s"] <= 30 and there["spent_s"] < 30

    in_process(tmp_path, use)
    job.stdout.close()
    job.stderr.close()


@pytest.mark.parametrize(
    ("why", "messages", "said"),
    [
        (OUT_OF_TIME, "Traceback\nKeyboardInterrupt\n", "ended at deadline_s (12 s), before there was a result"),
        (OUT_OF_TIME, "", "ended at deadline_s (12 s), before there was a result"),
        (CANCELLED, "\nKeyboardInterrupt", "cancelled before there was a result"),
        (CANCELLED, "flatout: no step was seen", "cancelled before there was a result: no step was seen"),
        ("", "\udcff\x1b[31m\x1b]0;title\x07flatout: it ended\x1b[0m\r\n", "it ended"),
        ("", "", "it ended with exit code 3, and said nothing"),
    ],
)
def test_a_summary_is_a_clean_sentence(why: str, messages: str, said: str) -> None:
    job = finished("profile", messages=messages, code=3, why=why)
    assert answer(job).summary == said
    job.stdout.close()
    job.stderr.close()


def test_what_a_failed_job_printed_is_its_result_as_plain_text(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text("print('\\x1b[31mred\\x1b[0m and\\rmore\\n' + 'x' * 2_000_000 + '\\nlast')")

    async def use(client: Client, _: Jobs) -> None:
        found = await ended(client, await called(client, "profile", command=[sys.executable, "x.py"]))
        assert found["state"] == "failed" and "\x1b" not in found["summary"]
        for name in ("result", "output"):
            page = (await client.read_resource(f"flatout://jobs/{found['job']}/{name}")).contents[0]
            assert page.mime_type == "text/plain"
            text = page.text  # type: ignore[union-attr]
            assert "x\nlast\n" in text and len(text) <= 1 << 20

    in_process(tmp_path, use)


def test_what_is_there_is_read_without_a_job(tmp_path: Path) -> None:
    async def use(client: Client, jobs: Jobs) -> None:
        machine = await called(client, "machine", assume="A10")
        assert machine["cores"] > 0 and machine["assumed"]["memory_bytes"] == 24 << 30
        assert machine["assumed"]["note"].startswith("it is not here: this machine has")
        assert machine["next_step"]["tool"] == "profile"
        guide = await client.read_resource("flatout://guide")
        assert "### Rules" in guide.contents[0].text  # type: ignore[union-attr]
        prompt = await client.get_prompt("fit_this_into_a_deadline", {"command": "python x.py", "deadline": "11m"})
        assert "Fit this training into 11m: python x.py" in prompt.messages[0].content.text  # type: ignore[union-attr]
        with pytest.raises(Exception, match="not known"):
            await client.read_resource("flatout://jobs/none/result")
        assert jobs.all() == []

    in_process(tmp_path, use)


def test_a_client_finds_recipes_and_their_keys(tmp_path: Path) -> None:
    async def use(client: Client, _: Jobs) -> None:
        names = await called(client, "recipes")
        assert "demo" in names["result"] and names["next_step"]["needs"] == ["recipe", "data"]
        sections = await called(client, "recipes", recipe="demo")
        assert "training" in sections["result"] and sections["next_step"]["arguments"] == {"recipe": "demo"}
        for section in sections["result"]:
            found = await called(client, "recipes", recipe="demo", section=section, deadline_s=60)
            assert len(json.dumps(found, indent=2).encode()) <= MOST_BYTES and found["left_s"] > 0
        folds = await called(client, "recipes", recipe="demo", section="folds")
        assert folds["result"]["folds.count"] == "stratified folds of the training part: 5"
        for arguments, said in (
            ({"section": "training"}, "of which recipe?"),
            ({"recipe": "demo", "section": "x"}, "section x: demo has task, about, data"),
            ({"recipe": "nothing"}, "nothing"),
        ):
            refused = await client.call_tool("recipes", arguments)
            assert refused.is_error and said in refused.content[0].text  # type: ignore[union-attr]

    in_process(tmp_path, use)


def test_an_answer_on_a_report_has_its_sentences_and_figures(tmp_path: Path) -> None:
    folder = rich_run(tmp_path / "rich")

    async def use(client: Client, _: Jobs) -> None:
        found = await called(client, "report", run=str(folder))
        result = found["result"]
        assert found["shortened"] and len(json.dumps(found, indent=2).encode()) <= MOST_BYTES
        assert sum(float(share.strip("<%")) for share in result["where_the_time_went"].values()) > 90
        assert result["causes"][0]["evidence"] and result["causes"][0]["share"].endswith("%")
        assert any("x (" in remedy["gain"] and "predicted" in remedy["gain"] for remedy in result["remedies"])
        assert result["steps"] > 0 and result["samples_per_s"] > 0

    in_process(tmp_path, use)


def test_the_result_of_a_training_is_a_sentence() -> None:
    whole = {"epochs": 3, "best_epoch": 1, "val/acc1": 0.97, "folder": "run", "submission": "run/submission.csv"}
    assert sentence("train", whole) == (
        "3 epochs were trained into run; epoch 2 is the best: val/acc1 0.97; the submission is run/submission.csv"
    )
    assert sentence("train", {"epochs": 0}) == sentence("plan", whole) == sentence("train", None) == ""


def test_the_time_left_of_a_training_is_that_of_its_own_limit() -> None:
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(["true"])
        process.wait()
        job = Job("train-1", "train", [], Path("."), None, process, out, err)
        assert job.left_s is None
        job.planned_s = 90.0
        assert 80 < (job.left_s or 0) <= 90 and not job.late
        job.deadline_s = 30.0
        assert 20 < (job.left_s or 0) <= 30


@pytest.mark.parametrize("room", [40, 300, 1500, 4000])
def test_a_long_result_is_shortened_to_fit_with_the_verdict_first(room: int) -> None:
    value = {
        "steps": list(range(10_000)),
        "verdict": "v" * 20,
        "causes": [{"id": "x" * 5000, "deep": {"a": {"b": 1}}}] * 9,
    }
    kept, cut = shortened(value, room)
    assert cut and len(repr(kept)) <= room + 40
    assert room < 300 or kept["verdict"] == "v" * 20
    assert shortened({"a": 1}, 100) == ({"a": 1}, False)
