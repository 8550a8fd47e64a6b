"""Files that are damaged, huge, hostile, or in the wrong encoding: read as far as they go, never believed."""

from __future__ import annotations

import gzip
import json
import random
import re
import resource
import struct
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from flatout import cli
from flatout.errors import UsageError
from flatout.logs.postmortem import read_logs
from flatout.logs.redaction import redacted
from flatout.report.logs import lines
from flatout.report.logs_json import to_dict

ROOT = Path(__file__).parents[2]
DATA = Path(__file__).parent / "data"
BAR = "Epoch 2:  50%|█████     | 20/40 [00:10<00:10,  2.00it/s, loss=1.5]"
SCHEMA = json.loads((ROOT / "docs" / "schema" / "read.schema.json").read_text(encoding="utf-8"))


def steps_of(path: Path) -> float | None:
    return read_logs([path]).files[0].epochs[0].time.steps


@pytest.mark.parametrize(
    "content",
    [
        BAR.encode("utf-16"),
        b"\xef\xbb\xbf" + BAR.encode(),
        BAR.encode("cp1252", "replace"),
        BAR.encode().decode("cp1252", "replace").encode(),  # encoded twice
        b"\x1b[A\x1b[32m" + BAR.encode() + b"\x1b[0m\x1b[K\n",
        gzip.compress(BAR.encode()),
        BAR.replace("2.00it/s", "500.0ms/it").encode() + b"\r" + BAR.encode(),
        b"\r\n".join([b"start", BAR.encode(), b""]),
        BAR.replace("20/40", "10/40").encode() + b"\r" + BAR.encode() + b"\n" + b"x" * 3_000_000 + b"\nend",
    ],
    ids=["utf16", "bom", "cp1252", "twice", "ansi", "gzip", "odd unit", "crlf", "long line"],
)
def test_a_bar_is_read_in_whatever_way_it_was_saved(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "train.log").write_bytes(content)
    assert steps_of(tmp_path / "train.log") == 20


def test_line_numbers_are_those_of_an_editor_also_behind_long_lines_and_blocks_that_are_skipped(tmp_path: Path) -> None:
    head = b"y" * 200_000 + b"\n" + b"nothing of note\n" * 250_000
    (tmp_path / "train.log").write_bytes(head + BAR.encode() + b"\n")
    assert read_logs([tmp_path / "train.log"]).files[0].epochs[0].time.source.line == 250_002


def test_a_huge_file_of_one_line_needs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "line.log"
    with path.open("wb") as file:
        file.truncate(1 << 20)
        file.seek(0)
        file.write(b"start\n")
        for _ in range(40):
            file.write(b"z" * (1 << 20))
        file.write(b"\n" + BAR.encode())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert steps_of(path) == 20
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 20_000  # KiB


def test_noise_damage_and_cuts_end_in_a_result_or_one_clear_line(tmp_path: Path) -> None:
    """Every clean file, cut and with bytes flipped: no other exception, and what is shown stays within 80 columns."""
    chance = random.Random(7)
    path = tmp_path / "damaged.log"
    for clean in sorted((DATA / "clean").iterdir()):
        content = clean.read_bytes()
        path = tmp_path / clean.name
        for _ in range(6):
            damaged = bytearray(content[: chance.randrange(1, len(content))])
            for _ in range(chance.choice((0, 5, 200))):
                damaged[chance.randrange(len(damaged))] = chance.randrange(256)
            path.write_bytes(damaged)
            try:
                read = read_logs([path])
            except UsageError as error:
                assert "\n" not in str(error)
                continue
            assert max(map(len, lines(read))) <= 80
            json.dumps(to_dict(read), allow_nan=False)


def test_numbers_that_cannot_be_end_in_no_fault(tmp_path: Path) -> None:
    """Reports with their numbers replaced by nothing, by much, and by more than a float holds."""
    chance = random.Random(11)
    odd = ("0", "0.0", "1", "7" * 12, "9" * 30, "9" * 400, "-5", "1e999")
    for case in sorted((DATA / "cases").iterdir()):
        text = case.read_text(encoding="utf-8")
        for _ in range(6):
            path = tmp_path / case.name
            parts = re.split(r"(\d+)", text)
            share = chance.choice((0.05, 0.3, 1.0))
            parts[1::2] = [chance.choice(odd) if chance.random() < share else one for one in parts[1::2]]
            path.write_text("".join(parts))
            read = read_logs([path, case])
            json.dumps(to_dict(read), allow_nan=False)
            assert max(map(len, lines(read))) <= 80


def test_a_record_that_claims_terabytes_is_not_allocated(tmp_path: Path) -> None:
    path = tmp_path / "events.out.tfevents.9"
    path.write_bytes(struct.pack("<Q", 1 << 42) + b"\0" * 100)
    with pytest.raises(UsageError, match="claims"):
        read_logs([path])


SECRETS = {
    "wandb login ": "0123456789abcdef0123456789abcdef01234567",
    "export AWS_SECRET_ACCESS_KEY=": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",
    "api_key: '": "sk-aaaaaaaaaaaaaaaaaaaaaaaa",
    "Authorization: Bearer ": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    "git clone https://me:": "hunter2hunter2@",
    "HF_TOKEN=": "hf_abcdefghijklmnopqrstuvwxyz",
    "password = ": "hunter2hunter2",
    "x" * 270 + " secret=": "wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY",  # across where quotes end
    "y" * 290 + " ": "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
}


@pytest.mark.parametrize("head", SECRETS)
def test_secrets_are_not_quoted(head: str, tmp_path: Path) -> None:
    line = head + SECRETS[head]
    start = SECRETS[head].strip("@")[:9]
    assert start not in redacted(line)
    (tmp_path / "train.log").write_text(
        f"{line} and a 74x gain\n{line} CUDA out of memory\nRESOURCES: 8 cores, GPU=A100 {line}\n"
        f"2x, 3x, 5x\ntogether 9x {line}\n"
    )
    read = read_logs([tmp_path / "train.log"])
    assert read.files[0].facts.troubles
    assert start not in json.dumps(to_dict(read)) and start not in "\n".join(lines(read))


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("--password Tr0ub4dor&3x --lr 1", "--password [hidden] --lr 1"),
        ("x.py --db-password s3cretpw --lr 1", "x.py --db-password [hidden] --lr 1"),
        ("the password was 'hun ter2' once", "the password was [hidden] once"),
        ("mysql -u root -phunter2 db", "mysql -u root -p[hidden] db"),
        ("AZURE_STORAGE_KEY=Eby8vdM02xNOcqFlqUwJPLlmEtlC/K1SZ==", "AZURE_STORAGE_KEY=[hidden]"),
        ("--wandb-key 0123456789abcdef0123456789abcdef01234567 -e 3", "--wandb-key [hidden] -e 3"),
        ("api_key=sk-1234567890abcdefgh x", "api_key=[hidden] x"),
        ("?apiKey=abc&page=2", "?apiKey=[hidden]&page=2"),
        ('{"secret": "y", "lr": 1}', '{"secret": [hidden], "lr": 1}'),
        ("password: 1234", "password: [hidden]"),
    ],
)
def test_a_secret_is_hidden_in_each_spelling_and_nothing_else_of_its_line(line: str, shown: str) -> None:
    assert redacted(line) == shown


@pytest.mark.parametrize(
    "line",
    [
        "tokens: 1024, tokens/s=55.1, max_token_len = 512",
        "--tokenizer bert --num-tokens 512 --key image",
        "keypoint_loss 0.2 key: val author: me, pad_token='[PAD]'",
        "pass 3 took 5 s, forward_pass: ok, num_key_value_heads: 8",
    ],
)
def test_words_that_only_look_like_names_of_secrets_stay(line: str) -> None:
    assert redacted(line) == line


def test_what_json_prints_is_what_the_schema_says() -> None:
    for folder in ("cases", "clean"):
        read = read_logs(sorted((DATA / folder).iterdir()))
        jsonschema.validate(json.loads(json.dumps(to_dict(read))), SCHEMA)


def test_the_command_prints_a_page_and_json_and_refuses_what_is_no_log(capsys: pytest.CaptureFixture[str]) -> None:
    case = str(DATA / "cases" / "e_deadline_agent.txt")
    assert cli.main(["read", case]) == 0
    shown = capsys.readouterr().out
    assert "off by 15x: 74x faster" in shown and "e_deadline_agent.txt:10:" in shown and "flatout profile" in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert cli.main(["read", case, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == 1
    assert cli.main(["read", "absent.log"]) == 2
    assert "absent.log: there is no such file" in capsys.readouterr().err


def test_reading_imports_neither_torch_nor_pickle_readers() -> None:
    code = "import sys; import flatout.logs.postmortem; print('torch' in sys.modules, 'tensorboard' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
