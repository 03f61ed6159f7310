from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from safetensors.numpy import load_file, save_file

from fedops.adapters import training_process
from fedops.adapters.training_process import ClientTrainer, CommandTrainer
from fedops.core.errors import ConfigError, TrainingError
from fedops.core.ids import SiteId
from fedops.ports import TrainingJob

MODEL: dict[str, NDArray[Any]] = {
    "bias": np.array([0.5, -0.25], np.float32),
    "half": np.array([[1.5]], np.float16),
    "steps": np.array(7, np.int64),
    "wide": np.array([1.0, 2.0**-40], np.float64),
    "mask": np.array([True, False]),
    "empty": np.zeros((0, 3), np.float32),
}


@pytest.fixture
def job(tmp_path: Path) -> TrainingJob:
    return a_job(tmp_path)


def a_job(tmp_path: Path) -> TrainingJob:
    run = tmp_path / "run"
    run.mkdir()
    save_file(MODEL, tmp_path / "model.safetensors")
    return TrainingJob(
        site=SiteId("hospital-a"),
        version=8,
        model=tmp_path / "model.safetensors",
        update=run / "update.safetensors",
        result=run / "result.json",
        fault=run / "fault.txt",
        log=tmp_path / "train.log",
        config={"hyperparameters": {"rate": 0.1}, "version": 8},
    )


class Told:
    def __init__(self) -> None:
        self.data = b""

    def __call__(self, data: bytes) -> None:
        self.data += data


def environment(**more: str) -> dict[str, str]:
    return dict(os.environ) | more


def command(*words: str, tmp_path: Path, echo: Any = lambda data: None, **more: str) -> CommandTrainer:
    return CommandTrainer(words, folder=tmp_path, environment=environment(**more), echo=echo)


def python(code: str, tmp_path: Path, **more: Any) -> CommandTrainer:
    return command(sys.executable, "-c", textwrap.dedent(code), tmp_path=tmp_path, **more)


def client(body: str, tmp_path: Path, **more: Any) -> ClientTrainer:
    """A trainer whose class C has this `fit` (and whatever else stands in body)."""
    text = "import os, sys\nimport numpy as np\nimport fedops\nclass C:\n" + textwrap.indent(
        textwrap.dedent(body), "    "
    )
    (tmp_path / "ours.py").write_text(text)
    name = more.pop("name", "ours:C")
    return ClientTrainer(name, folder=tmp_path, environment=environment(), echo=more.pop("echo", lambda data: None))


FIT = """
def fit(self, parameters, config):
    moved = {n: a if a.dtype.kind in "ib" else a + np.asarray(1, a.dtype) for n, a in parameters.items()}
    return fedops.FitResult(moved, 150, {"loss": 0.25})
"""


# ---------------------------------------------------------------- command hook


def test_a_command_is_told_everything_by_environment_variables(tmp_path: Path, job: TrainingJob) -> None:
    code = """
        import json, os, pathlib
        seen = {k: v for k, v in os.environ.items() if k.startswith("FEDOPS_")}
        pathlib.Path(os.environ["FEDOPS_UPDATE"]).write_bytes(pathlib.Path(os.environ["FEDOPS_MODEL"]).read_bytes())
        pathlib.Path(os.environ["FEDOPS_RESULT"]).write_text(json.dumps(seen))
    """
    python(code, tmp_path).run(job)
    seen = json.loads(job.result.read_text())
    assert json.loads(seen.pop("FEDOPS_CONFIG")) == {"hyperparameters": {"rate": 0.1}, "version": 8}
    assert seen == {
        "FEDOPS_SITE": "hospital-a",
        "FEDOPS_VERSION": "8",
        "FEDOPS_MODEL": str(job.model),
        "FEDOPS_UPDATE": str(job.update),
        "FEDOPS_RESULT": str(job.result),
    }
    assert job.update.read_bytes() == job.model.read_bytes()


def test_the_code_sees_no_key_and_no_forge_token_but_the_rest_of_the_environment(
    tmp_path: Path, job: TrainingJob
) -> None:
    told = Told()
    secrets = {"FEDOPS_KEY": "/keys/a", "GITHUB_TOKEN": "t1", "GH_TOKEN": "t2", "GH_ENTERPRISE_TOKEN": "t3"}
    code = "import os; print(sorted(k for k in os.environ if 'KEY' in k or 'TOKEN' in k), os.environ['CUDA_VISIBLE_DEVICES'])"
    python(code, tmp_path, echo=told, CUDA_VISIBLE_DEVICES="1", DATA_TOKEN="own", **secrets).run(job)
    assert told.data == b"['DATA_TOKEN'] 1\n"


def test_output_goes_to_the_log_and_to_the_echo_as_one_stream(tmp_path: Path, job: TrainingJob) -> None:
    told = Told()
    python("import sys; print('out'); print('err', file=sys.stderr); print('\\xe9')", tmp_path, echo=told).run(job)
    assert told.data == job.log.read_bytes() == "out\nerr\né\n".encode()


def test_output_is_passed_on_while_the_code_still_runs(tmp_path: Path, job: TrainingJob) -> None:
    # The code ends only after it sees that its first line was passed on.
    flag = tmp_path / "seen"
    code = f"""
        import pathlib, time
        print("epoch 1")
        for _ in range(2000):
            if pathlib.Path({str(flag)!r}).exists():
                break
            time.sleep(0.005)
        else:
            raise SystemExit(9)
    """
    python(code, tmp_path, echo=lambda data: flag.touch()).run(job)
    assert flag.exists()


def test_the_code_starts_in_the_callers_folder_and_gets_no_input(tmp_path: Path, job: TrainingJob) -> None:
    told = Told()
    python("import os, sys; print(os.getcwd(), repr(sys.stdin.read()))", tmp_path, echo=told).run(job)
    assert told.data.decode().split() == [str(tmp_path), "''"]


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("raise SystemExit(3)", "ended with exit code 3"),
        ("raise SystemExit(200)", "ended with exit code 200"),
        ("print('cannot read scans'); raise SystemExit(1)", "ended with exit code 1: cannot read scans"),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL, which is how a machine out of memory"),
        ("import os; os.kill(os.getpid(), 11)", "was killed by SIGSEGV"),
        ("raise SystemExit(137)", "was killed by SIGKILL"),  # what a shell says of its child
    ],
)
def test_how_the_code_failed_is_said(code: str, says: str, tmp_path: Path, job: TrainingJob) -> None:
    with pytest.raises(TrainingError) as e:
        python(code, tmp_path).run(job)
    assert says in e.value.message
    assert str(job.log) in e.value.hint
    assert e.value.cause == "permanent"


def test_the_last_line_in_a_message_cannot_act_on_a_terminal(tmp_path: Path, job: TrainingJob) -> None:
    with pytest.raises(TrainingError) as e:
        python("print('\\x1b[2J' + 'x' * 9000 + '\\n' + '\\x1b[31mred'); raise SystemExit(1)", tmp_path).run(job)
    assert e.value.message.endswith(": ?[31mred")


def test_a_program_that_is_not_there_is_named(tmp_path: Path, job: TrainingJob) -> None:
    with pytest.raises(TrainingError, match="no-such-program: cannot be started"):
        command("no-such-program", tmp_path=tmp_path).run(job)


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(ConfigError, match="--command: empty"):
        CommandTrainer([], folder=Path(), environment={}, echo=lambda data: None)


def test_a_child_that_the_code_leaves_behind_is_not_waited_for(tmp_path: Path, job: TrainingJob) -> None:
    pid = tmp_path / "pid"
    code = f"""
        import subprocess, pathlib
        child = subprocess.Popen(["sleep", "60"])
        pathlib.Path({str(pid)!r}).write_text(str(child.pid))
    """
    try:
        python(code, tmp_path).run(job)
        assert not dead(int(pid.read_text()))
    finally:
        os.kill(int(pid.read_text()), signal.SIGKILL)


def test_an_interrupted_caller_ends_the_code_and_what_it_started(tmp_path: Path, job: TrainingJob) -> None:
    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    # Both hold the pipe open for writing: the reader sees its end when the last of them has ended.
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    code = f"""
        import subprocess, sys, time
        with open({str(tmp_path / "pipe")!r}, "w") as pipe:
            ignores = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(1, flush=True); time.sleep(60)"
            child = subprocess.Popen([sys.executable, "-c", ignores], stdout=pipe)
            print("started")
            time.sleep(60)
    """
    try:
        with pytest.raises(KeyboardInterrupt):
            python(code, tmp_path, echo=interrupt).run(job)
        os.set_blocking(reader, True)
        assert os.read(reader, 10) in (b"", b"1\n")
        assert os.read(reader, 10) == b""
    finally:
        os.close(reader)


def test_code_that_ignores_the_polite_signal_is_killed(
    tmp_path: Path, job: TrainingJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(training_process, "STOP_SECONDS", 0.2)
    pid = tmp_path / "pid"

    def interrupt(data: bytes) -> None:
        raise KeyboardInterrupt

    code = f"""
        import os, pathlib, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        pathlib.Path({str(pid)!r}).write_text(str(os.getpid()))
        print("started")
        time.sleep(60)
    """
    with pytest.raises(KeyboardInterrupt):
        python(code, tmp_path, echo=interrupt).run(job)
    wait_until(partial(dead, int(pid.read_text())))


# ---------------------------------------------------------------- Python hook


def test_a_client_gets_the_models_arrays_and_its_result_is_written_canonically(
    tmp_path: Path, job: TrainingJob
) -> None:
    client(FIT, tmp_path).run(job)
    got = load_file(job.update)
    assert got.keys() == MODEL.keys()
    for name, before in MODEL.items():
        after = before if before.dtype.kind in "ib" else before + np.asarray(1, before.dtype)
        assert (got[name].dtype, got[name].shape) == (before.dtype, before.shape)
        np.testing.assert_array_equal(got[name], after)
    save_file(got, tmp_path / "reference.safetensors")
    assert job.update.read_bytes() == (tmp_path / "reference.safetensors").read_bytes()
    assert json.loads(job.result.read_text()) == {"num_examples": 150, "metrics": {"loss": 0.25}}


def test_parameters_come_in_the_models_order_and_may_be_changed_in_place(tmp_path: Path, job: TrainingJob) -> None:
    told = Told()
    body = """
    def fit(self, parameters, config):
        print(list(parameters), config)
        parameters["bias"] += 1
        return fedops.FitResult(parameters, 1)
    """
    client(body, tmp_path, echo=told).run(job)
    # The reference library's order: by alignment of the dtype, then by name.
    order = ["steps", "wide", "bias", "empty", "half", "mask"]
    assert told.data.decode().strip() == f"{order} {dict(job.config)}"
    np.testing.assert_array_equal(load_file(job.update)["bias"], np.array([1.5, 0.75], np.float32))
    assert load_file(job.model)["bias"][0] == np.float32(0.5)


def test_bfloat16_is_handed_over_as_float32_and_rounded_half_to_even_on_the_way_back(
    tmp_path: Path, job: TrainingJob
) -> None:
    # BF16 has 8 significant bits: 1 + 2**-8 lies half way between 1 and 1 + 2**-7 (1 is even), 1 + 3 * 2**-8 half way
    # between 1 + 2**-7 and 1 + 2**-6 (the latter is even).
    stored = np.array([0x3F80, 0x4000], "<u2").tobytes()  # 1.0, 2.0
    header = json.dumps({"w": {"dtype": "BF16", "shape": [2], "data_offsets": [0, 4]}}, separators=(",", ":")).encode()
    header += b" " * (-len(header) % 8)
    job.model.write_bytes(len(header).to_bytes(8, "little") + header + stored)
    body = """
    def fit(self, parameters, config):
        assert parameters["w"].dtype == np.float32 and list(parameters["w"]) == [1.0, 2.0]
        return fedops.FitResult({"w": np.array([1 + 2**-8, 1 + 3 * 2**-8], np.float32)}, 1)
    """
    client(body, tmp_path).run(job)
    assert np.frombuffer(job.update.read_bytes()[-4:], "<u2").tolist() == [0x3F80, 0x3F82]


def test_numpy_numbers_and_array_likes_are_taken_for_what_they_are(tmp_path: Path, job: TrainingJob) -> None:
    body = """
    def fit(self, parameters, config):
        class Tensor:  # as of another library
            def __array__(self, dtype=None, copy=None):
                return np.array([1.0, 2.0], np.float32)
        parameters["bias"] = Tensor()
        parameters["wide"] = np.asfortranarray(parameters["wide"])
        return fedops.FitResult(parameters, np.int64(12), {"loss": np.float32(0.5), "accuracy": np.int32(1)})
    """
    client(body, tmp_path).run(job)
    assert load_file(job.update)["bias"].tolist() == [1.0, 2.0]
    assert json.loads(job.result.read_text()) == {"num_examples": 12, "metrics": {"loss": 0.5, "accuracy": 1.0}}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("p['bias'] = np.zeros(2)", "fit: tensor 'bias': dtype float64 -> float32 (F32)"),
        ("raise ValueError('no scans\\nin folder')", "ours:C: raised ValueError: no scans in folder"),
        ("sys.exit(4)", "ended with exit code 4"),
        ("os._exit(5)", "ended with exit code 5"),
    ],
)
def test_what_is_wrong_with_a_client_is_said_in_one_line(
    body: str, says: str, tmp_path: Path, job: TrainingJob
) -> None:
    code = f"def fit(self, p, config):\n    {body}\n    return fedops.FitResult(p, 1, {{}})\n"
    with pytest.raises(TrainingError) as e:
        client(code, tmp_path).run(job)
    assert says in e.value.message
    assert "\n" not in e.value.message
    assert not job.result.exists()


def test_numbers_that_are_wrong_do_not_cost_the_trained_update(tmp_path: Path, job: TrainingJob) -> None:
    with pytest.raises(TrainingError, match="num_examples"):
        client(FIT.replace("150", "0"), tmp_path).run(job)
    assert load_file(job.update).keys() == MODEL.keys()


def test_a_module_of_the_sites_folder_does_not_replace_one_of_fedops(tmp_path: Path, job: TrainingJob) -> None:
    (tmp_path / "json.py").write_text("raise RuntimeError('taken for the real one')\n")
    (tmp_path / "fedops.py").write_text("raise RuntimeError('taken for the real one')\n")
    client(FIT, tmp_path).run(job)
    assert job.update.exists()


@pytest.mark.parametrize("name", ["ours", "ours:", ":C", "ours/sub.py:C", "ours:C()", "ours:C; import os", "-m:C"])
def test_a_client_is_given_as_module_and_class(name: str) -> None:
    with pytest.raises(ConfigError, match="--client"):
        ClientTrainer(name, folder=Path(), environment={}, echo=lambda data: None)


def test_ending_a_program_that_has_ended_by_itself_is_no_fault(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""], start_new_session=True) as ended:
        ended.wait()
        training_process._stop(ended)
    assert ended.returncode == 0


@pytest.mark.skipif(sys.platform == "win32", reason="for another system: process groups")
def test_a_training_does_not_outlive_the_fedops_that_asked_for_it(tmp_path: Path) -> None:
    """A killed fedops takes its training along, and what that started; the next one has the machine for itself."""
    pids = tmp_path / "pids"
    program = f"sleep 1000 & echo $! $$ >{pids}.part; mv {pids}.part {pids}; wait"
    asking = (
        "import sys\nfrom pathlib import Path\n"
        "from tests.adapters.test_training_process import a_job\n"
        "from fedops.adapters.training_process import CommandTrainer\n"
        f"CommandTrainer(['sh', '-c', {program!r}], folder=Path({str(tmp_path)!r}), environment={{'PATH': '/bin:/usr/bin'}},"
        f" echo=print).run(a_job(Path({str(tmp_path)!r})))\n"
    )
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen([sys.executable, "-c", asking], cwd=root) as fedops:
        wait_until(pids.exists)
        fedops.kill()
    started = [int(pid) for pid in pids.read_text().split()]
    assert len(started) == 2, "the program, and what it started"
    for pid in started:
        wait_until(partial(dead, pid))


def wait_until(holds: Callable[[], bool], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def dead(pid: int) -> bool:
    """True for a process that is over, also if its parent has not noticed yet."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"
