"""The command `fedops check`: arguments, both forms of the result, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result
from safetensors.numpy import save

from fedops.cli.main import cli, run

BASE = {"w": np.zeros((3, 2), np.float32)}


def model(path: Path, *shape: int, value: float = 1.0) -> Path:
    path.write_bytes(save({"w": np.full(shape, value, np.float32)}))
    return path


def record(path: Path, **changes: Any) -> Path:
    fields = {
        "schema": "fedops.submission/v1",
        "site": "hospital-a",
        "base_version": 4,
        "num_examples": 10,
        "format": "safetensors",
        "payload": "full",
        "sha256": "0" * 64,
        "metrics": {},
        "created_at": "2026-03-02T09:30:00Z",
    }
    path.write_text(json.dumps(fields | changes))
    return path


def check(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["check", *map(str, arguments)])


@pytest.fixture
def files(tmp_path: Path) -> dict[str, Path]:
    return {
        "good": model(tmp_path / "good.safetensors", 3, 2),
        "bad": model(tmp_path / "bad.safetensors", 4, 2),
        "base": model(tmp_path / "base.safetensors", 3, 2, value=0.0),
    }


def test_a_good_file_is_one_line_and_exit_0(files: dict[str, Path]) -> None:
    result = check(files["good"], "--base", files["base"])
    assert result.exit_code == 0
    [line] = result.stdout.splitlines()
    assert line.startswith(f"ok  {files['good']} (submission): safetensors, 1 tensor, ")


def test_a_bad_file_says_what_where_and_what_next_and_exits_3(files: dict[str, Path]) -> None:
    result = check(files["bad"], "--base", files["base"])
    assert result.exit_code == 3
    first, found, hint = result.stdout.splitlines()
    assert first.startswith(f"no  {files['bad']}")
    assert found == (
        f"    {files['bad']}: a tensor has another shape than in the base model (tensor w), [4, 2] -> [3, 2] [FO-214]"
    )
    assert hint == "      hint: train on the current global version: `fedops pull`"


def test_equal_hints_stand_once_below_what_they_are_for(tmp_path: Path) -> None:
    bad = record(tmp_path / "r.json", extra=1, more=2, num_examples=0)
    lines = [line.strip().split(":")[0] for line in check(bad).stdout.splitlines()[1:]]
    name = str(tmp_path / "r.json")
    assert lines == [name, "hint", name, name, "hint"]


def test_json_is_the_document_of_the_contract(files: dict[str, Path]) -> None:
    result = check(files["bad"], "--base", files["base"], "--format", "json")
    assert result.exit_code == 3
    document = json.loads(result.stdout)
    [item] = document.pop("items")
    assert document == {"schema": "fedops.check/v1", "ok": False, "changed": False, "findings": []}
    assert list(item) == ["name", "kind", "ok", "facts", "findings"]
    assert item["findings"] == [
        {
            "id": "FO-214",
            "slug": "shape_mismatch",
            "severity": "error",
            "where": str(files["bad"]),
            "got": [4, 2],
            "expected": [3, 2],
            "detail": {"tensor": "w"},
        }
    ]


def test_a_warning_does_not_make_the_answer_no(tmp_path: Path) -> None:
    update = tmp_path / "a.safetensors"
    update.write_bytes(save({"w": np.zeros(1, np.float32)}, {"note": "x"}))
    result = check(update)
    assert result.exit_code == 0
    assert "    warning: " in result.stdout


def test_the_record_is_checked_with_the_file_or_alone(files: dict[str, Path], tmp_path: Path) -> None:
    bad = record(tmp_path / "r.json", num_examples=0)
    assert "[FO-222]" in check(files["good"], "--record", bad).stdout
    alone = check(bad)
    assert alone.exit_code == 3
    assert "[FO-222]" in alone.stdout
    good = check(record(tmp_path / "g.json"))
    assert (
        good.stdout == f'ok  {tmp_path / "g.json"} (submission): site "hospital-a", base version 4, num examples 10\n'
    )


def plan(tmp_path: Path, *items: dict[str, Any], **changes: Any) -> Path:
    path = tmp_path / "check.json"
    path.write_text(json.dumps({"schema": "fedops.check-plan/v1", "items": items} | changes))
    return path


def test_a_plan_has_one_line_for_each_item(tmp_path: Path) -> None:
    items = [{"name": "t", "kind": "tag", "value": "global@v3.0.0"}, {"name": "i", "kind": "site-id", "value": "X"}]
    result = check("--plan", plan(tmp_path, *items))
    assert result.exit_code == 3
    lines = result.stdout.splitlines()
    assert lines[0] == 'ok  t (tag): site "global", version 3'
    assert lines[1] == "no  i (site-id)"


def test_a_plan_without_items_has_nothing_to_refuse(tmp_path: Path) -> None:
    result = check("--plan", plan(tmp_path))
    assert (result.exit_code, result.stdout) == (0, "")


def test_paths_and_stores_start_from_the_plans_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "deep"
    (folder / "store").mkdir(parents=True)
    text = (
        f"outs:\n- {{md5: {'a' * 32}, size: 3, hash: md5, path: update.safetensors, remote: sites-hospital-a}}\n"
        f'meta:\n  fedops: {{repository: "sites/hospital-a", manifest: "sha256:{"c" * 64}", sha256: {"b" * 64}}}\n'
    )
    (folder / "x.dvc").write_text(text)
    item = {"name": "p", "kind": "pointer", "pointer": "x.dvc", "placed_at": "sites/hospital-a/update.safetensors.dvc"}
    path = plan(folder, item, store="ocidir:store")
    monkeypatch.chdir(tmp_path)
    result = check("--plan", path.relative_to(tmp_path), "--format", "json")
    assert [f["slug"] for f in json.loads(result.stdout)["items"][0]["findings"]] == ["object_missing"]


@pytest.mark.parametrize(
    "arguments",
    [[], ["--plan", "P", "F"], ["--plan", "P", "--record", "F"], ["--plan", "P", "--base", "F"], ["missing"]],
)
def test_a_wrong_command_line_is_exit_2(tmp_path: Path, files: dict[str, Path], arguments: list[str]) -> None:
    real = {"P": str(plan(tmp_path)), "F": str(files["good"])}
    assert check(*(real.get(a, a) for a in arguments)).exit_code == 2


def test_a_wrong_plan_is_exit_2_and_names_file_and_key(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = plan(tmp_path, surprise=1)
    assert run(["check", "--plan", str(path)]) == 2
    assert "check.json: surprise: unknown key" in capsys.readouterr().err
    assert run(["check", "--plan", str(path), "--format", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["slug"] == "config_invalid"


def test_the_help_shows_both_forms() -> None:
    text = check("--help").stdout
    assert "  fedops check --plan check.json --format json\n" in text


def test_nothing_is_written_and_a_second_run_says_the_same(files: dict[str, Path], tmp_path: Path) -> None:
    before = sorted(p.name for p in tmp_path.iterdir())
    outputs = set()
    for _ in range(2):
        command = [sys.executable, "-W", "error", "-m", "fedops.cli.main", "check", "good.safetensors"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True)
        assert (done.returncode, done.stderr) == (0, b"")
        outputs.add(done.stdout)
    assert len(outputs) == 1
    assert sorted(p.name for p in tmp_path.iterdir()) == before


@pytest.mark.parametrize(
    ("name", "lines", "says"),
    [
        ("aggregation", ["# ours", "strategy: {name: fedadam}"], "aggregation.yaml:3: strategy 'fedadam' -> one of"),
        ("aggregation", ["privacy: {clip_norm: 1, noise_multiplier: 1}"], "aggregation.yaml:2: privacy: not available"),
        ("aggregation", ["triger: {}"], "aggregation.yaml:2: triger: unknown key, did you mean trigger?"),
        ("submission-policy", ["num_examples_max: many"], "submission.yaml:2: num_examples_max"),
        ("training", ["- x"], "training.yaml"),
        ("sites", ["sites: {hospital-a: {}}"], "sites.yaml:2: sites.hospital-a"),
        ("federation", ["name: FED"], "federation.yaml"),
    ],
)
def test_what_a_lead_writes_is_read_as_ci_will_read_it(
    name: str, lines: list[str], says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / f"{name.removesuffix('-policy')}.yaml"
    path.write_text("\n".join([f"schema: fedops.{name}/v1", *lines]) + "\n")
    result = check(path.name)
    assert result.exit_code == 3
    assert result.stdout.startswith(f"no  {path.name} (policy)\n")
    item = json.loads(check(path.name, "--format", "json").stdout)["items"][0]
    assert [(f["slug"], f["where"]) for f in item["findings"]] == [("policy_invalid", path.name)]
    assert item["findings"][0]["got"].startswith(says)


def test_a_policy_that_can_be_used_is_ok(tmp_path: Path) -> None:
    path = tmp_path / "aggregation.yaml"
    path.write_text("schema: fedops.aggregation/v1\ntrigger: {quorum: 2}\n")
    result = check(path)
    assert (result.exit_code, result.stdout) == (0, f"ok  {path} (policy)\n")


@pytest.mark.parametrize("more", [[], ["--record", "r"], ["--base", "r"]])
def test_a_yaml_file_that_is_none_of_main_is_exit_2(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "r").touch()
    name = "aggregation.yaml" if more else "other.yaml"
    (tmp_path / name).write_text("schema: fedops.aggregation/v1\n")
    assert run(["check", str(tmp_path / name), *(str(tmp_path / m) if m == "r" else m for m in more)]) == 2
