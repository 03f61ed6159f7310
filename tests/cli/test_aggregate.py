"""The command `fedops aggregate`: arguments, both forms of the result, exit codes; and the traps of known designs."""

from __future__ import annotations

import json
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner, Result

from fedops.cli.main import cli, run
from tests.aggregate_world import Item, World, good


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def aggregate(world: World, *items: Item, options: tuple[str, ...] = (), **changes: Any) -> Result:
    """Run the command in this process; `out` of the world is the target."""
    arguments = ["aggregate", "--plan", str(world.plan(*items, **changes)), "--out", str(world.out), *options]
    return CliRunner(catch_exceptions=False).invoke(cli, arguments)


def document(world: World, *items: Item, options: tuple[str, ...] = (), **changes: Any) -> tuple[int, dict[str, Any]]:
    result = aggregate(world, *items, options=(*options, "--format", "json"), **changes)
    return result.exit_code, json.loads(result.stdout)


def test_people_get_a_table_the_digest_and_the_files(world: World) -> None:
    result = aggregate(world, *good(world))
    assert (result.exit_code, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[0] == "v8 from v7 (fedavg, 2 sites)"
    assert lines[2].split() == ["site", "base", "stale", "examples", "weight", "share"]
    assert lines[-2] == f"sha256 {world.sha256('out/model.safetensors')}"
    assert lines[-1] == f"written: {world.out}/model.safetensors (72 bytes) and version.json"
    assert aggregate(world, *good(world)).stdout.splitlines()[-1].startswith("already there: ")


def test_json_is_the_document_of_the_contract(world: World) -> None:
    code, result = document(world, *good(world), world.item("clinic-c", [np.nan, 0]))
    assert code == 0
    contributions = result.pop("contributions")
    assert result == {
        "schema": "fedops.aggregate/v1",
        "ok": True,
        "changed": True,
        "findings": [
            {
                "id": "FO-218",
                "slug": "non_finite",
                "severity": "error",
                "where": "submissions/2",
                "got": "nan",
                "expected": None,
                "detail": {"site": "clinic-c", "tensor": "w", "index": 0},
            }
        ],
        "outcome": "partial",
        "version": 8,
        "model": {
            "path": "model.safetensors",
            "sha256": world.sha256("out/model.safetensors"),
            "size": (world.out / "model.safetensors").stat().st_size,
        },
        "denominator": 400.0,
        "chosen": None,
    }
    assert contributions[0] == {
        "site": "hospital-a",
        "base_version": 7,
        "staleness": 0,
        "num_examples": 100,
        "weight": 100.0,
        "share": 0.25,
        "delta_norm": None,
        "clip_factor": None,
        "score": None,
        "sha256": None,
    }


def test_a_refusal_is_exit_3_and_writes_nothing(world: World) -> None:
    code, result = document(world, *good(world), policy={"trigger": {"quorum": 3}})
    assert (code, result["ok"], result["changed"], result["outcome"]) == (3, False, False, "refused")
    assert (result["version"], result["model"], result["contributions"]) == (None, None, [])
    [found] = result["findings"]
    assert (found["slug"], found["got"], found["expected"]) == ("too_few_updates", 2, 3)
    text = aggregate(world, *good(world), policy={"trigger": {"quorum": 3}})
    assert (text.exit_code, text.stdout.splitlines()[0]) == (3, "refused: nothing was written")
    assert not world.out.exists()


def test_a_dry_run_writes_nothing(world: World) -> None:
    code, result = document(world, *good(world), options=("--dry-run",))
    assert (code, result["changed"], result["outcome"]) == (0, True, "complete")
    assert not world.out.exists()
    assert "would write: " in aggregate(world, *good(world), options=("--dry-run",)).stdout


def test_a_strategy_that_is_not_there_is_exit_2(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    plan = str(world.plan(*good(world), policy={"strategy": {"name": "fedadam"}}))
    assert run(["aggregate", "--plan", plan, "--out", str(world.out)]) == 2
    assert "'fedadam' -> one of fedavg, krum, median, trimmed_mean" in capsys.readouterr().err
    assert not world.out.exists()


@pytest.mark.parametrize(
    ("strategy", "says"),
    [
        ({"name": "trimmed_mean", "beta": "-1"}, "strategy trimmed_mean: beta: '-1' -> a decimal number"),
        ({"name": "krum", "f": -1}, "strategy krum: f: -1 -> a whole number from 0 on"),
        ({"name": "krum"}, "strategy krum: f: required, but absent"),
    ],
)
def test_a_parameter_that_can_never_be_valid_is_exit_2(
    world: World, capsys: pytest.CaptureFixture[str], strategy: dict[str, Any], says: str
) -> None:
    plan = str(world.plan(*good(world), policy={"strategy": strategy}))
    assert run(["aggregate", "--plan", plan, "--out", str(world.out)]) == 2
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("strategy", "slug"),
    [({"name": "trimmed_mean", "beta": "0.5"}, "trim_too_large"), ({"name": "krum", "f": 0}, "krum_too_few")],
)
def test_a_parameter_that_does_not_fit_so_few_updates_is_exit_3(
    world: World, strategy: dict[str, Any], slug: str
) -> None:
    code, result = document(world, *good(world), policy={"strategy": strategy})
    assert (code, result["outcome"], [f["slug"] for f in result["findings"]]) == (3, "refused", [slug])
    assert (result["chosen"], result["contributions"]) == (None, [])
    assert not world.out.exists()


def test_scores_and_the_one_that_was_taken_are_shown(world: World) -> None:
    items = [*good(world), world.item("clinic-c", [2, 1], n=5)]
    text = aggregate(world, *items, policy={"strategy": {"name": "krum", "f": 0}}).stdout.splitlines()
    assert text[0] == "v8 from v7 (krum, 3 sites)"
    assert text[2:6] == [
        "site        base  stale  examples  score  taken",
        "clinic-c    v7        0         5      1  yes",
        "hospital-a  v7        0       100      1",
        "hospital-b  v7        0       300     25",
    ]


def test_noise_is_exit_2(world: World, capsys: pytest.CaptureFixture[str]) -> None:
    privacy = {"clip_norm": 1.0, "noise_multiplier": 1.1}
    plan = str(world.plan(*good(world), policy={"privacy": privacy}))
    key = world.path / "key"
    key.write_bytes(b"0" * 32)
    assert run(["aggregate", "--plan", plan, "--out", str(world.out), "--noise-key-file", str(key)]) == 2
    assert "noise is not available in this version" in capsys.readouterr().err


def test_a_wrong_command_line_is_exit_2(world: World) -> None:
    plan = str(world.plan(*good(world)))
    for arguments in (
        [],
        ["--plan", plan],
        ["--out", "out"],
        ["--plan", "missing", "--out", "out"],
        ["--plan", plan, "--out", "out", "--noise-key-file", "missing"],
        ["--plan", plan, "--out", "out", "--format", "md"],
    ):
        assert CliRunner().invoke(cli, ["aggregate", *arguments]).exit_code == 2


def test_paths_start_from_the_plans_folder_and_out_from_here(world: World, tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    plan = world.plan(*good(world))
    command = [sys.executable, "-W", "error", "-m", "fedops.cli.main", "aggregate", "--plan", f"../{plan.name}"]
    outputs = []
    for _ in range(2):
        done = subprocess.run([*command, "--out", "made"], cwd=here, capture_output=True, check=True)
        assert done.stderr == b""
        outputs.append(done.stdout.decode().splitlines())
    assert outputs[0][:-1] == outputs[1][:-1]
    assert outputs[0][-1] == "written: made/model.safetensors (72 bytes) and version.json"
    assert outputs[1][-1].startswith("already there: made/")
    assert world.values(here / "made") == [4.0, 4.0]


# ------------------------------------------------------------------ traps of known designs (their numbers in brackets)


def rounded(values: list[Fraction]) -> list[float]:
    return [float(np.float32(float(v))) for v in values]


def test_1_a_stale_update_counts_from_its_own_base(world: World) -> None:
    items = [world.item("hospital-a", [2, 2]), world.item("hospital-b", [3, -3], base=4)]
    code, result = document(world, *items, policy={"staleness": {"kind": "polynomial", "alpha": 0.5, "max": 5}})
    assert (code, [c["weight"] for c in result["contributions"]]) == (0, [100.0, 50.0])
    # Deltas (1, 0) from v7 and (3, -3) from v4.
    assert world.values() == rounded([1 + Fraction(100 * 1 + 50 * 3, 150), 2 + Fraction(50 * -3, 150)])
    against_current = rounded([1 + Fraction(100 * 1 + 50 * 2, 150), 2 + Fraction(50 * -5, 150)])
    assert world.values() != against_current


@pytest.mark.parametrize(("normalize", "part"), [("weights", Fraction(1)), ("count", Fraction(1, 4))])
def test_2_only_with_count_do_equally_stale_updates_shorten_the_step(
    world: World, normalize: str, part: Fraction
) -> None:
    items = [world.item("hospital-a", [2, 0], base=4), world.item("hospital-b", [4, -8], base=4, n=300)]
    code, result = document(world, *items, policy={"weights": {"normalize": normalize}})
    assert (code, result["denominator"]) == (0, 400.0 if normalize == "count" else 100.0)
    # Both are three versions old and count a quarter; the mean delta is (3.5, -6).
    assert world.values() == rounded([1 + part * Fraction(1400, 400), 2 + part * Fraction(-2400, 400)])


def test_12_a_claim_of_a_billion_examples_is_refused_or_capped(world: World) -> None:
    honest = [world.item("hospital-a", [1, 1]), world.item("hospital-b", [3, 3])]
    greedy = world.item("clinic-c", [1000, 1000], n=10**9)
    code, result = document(world, *honest, greedy)
    [found] = result["findings"]
    assert (code, found["slug"], found["got"]) == (0, "num_examples_invalid", 10**9)
    assert world.values() == [2.0, 2.0]
    allowed = {"num_examples_max": 10**9}
    for weights, values, shares in (
        ({"max_num_examples": 100}, [Fraction(1 + 3 + 1000, 3)], [Fraction(1, 3)] * 3),
        ({"by": "uniform"}, [Fraction(1 + 3 + 1000, 3)], [Fraction(1, 3)] * 3),
        ({"max_share": 0.5}, [Fraction(1 + 3 + 2 * 1000, 4)], [Fraction(1, 2), Fraction(1, 4), Fraction(1, 4)]),
    ):
        code, result = document(world, *honest, greedy, submission_policy=allowed, policy={"weights": weights})
        assert (code, result["outcome"]) == (0, "complete")
        assert world.values() == rounded(values * 2)
        assert [c["share"] for c in result["contributions"]] == [float(s) for s in shares]
