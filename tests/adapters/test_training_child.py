"""The wrapper around a site's client, called in this process; test_training_process.py runs it as it is run."""

from __future__ import annotations

import json
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from fedops.adapters import training_child

MODEL = {"bias": np.array([0.5, -0.25], np.float32), "steps": np.array(7, np.int64)}
HEAD = "import sys\nimport numpy as np\nimport fedops\n"


class Site:
    """A site's folder with a module `ours`, and the request that fedops makes of it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.model = folder / "model.safetensors"
        self.update = folder / "update.safetensors"
        self.result = folder / "result.json"
        self.fault = folder / "fault.txt"
        save_file(MODEL, self.model)

    def run(self, code: str, client: str = "ours:C") -> int:
        (self.folder / "ours.py").write_text(HEAD + textwrap.dedent(code))
        request = {"client": client, "config": {"version": 8}}
        request |= {name: str(getattr(self, name)) for name in ("model", "update", "result", "fault")}
        path = self.folder / "request.json"
        path.write_text(json.dumps(request))
        return training_child.main([str(path)])

    def says(self) -> str:
        return self.fault.read_text()


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    yield Site(tmp_path)
    for name in set(sys.modules) - before:
        del sys.modules[name]


def fit(body: str) -> str:
    return f"class C:\n    def fit(self, p, config):\n        n, m = 150, {{}}\n        {body}\n        return fedops.FitResult(p, n, m)\n"


def test_a_good_fit_leaves_the_update_and_what_was_said_of_it(site: Site) -> None:
    assert site.run(fit("p['bias'] += config['version']; m = {'loss': np.float32(0.5)}")) == 0
    assert load_file(site.update)["bias"].tolist() == [8.5, 7.75]
    assert json.loads(site.result.read_text()) == {"num_examples": 150, "metrics": {"loss": 0.5}}
    assert not site.fault.exists()


def test_bfloat16_goes_out_as_float32_and_comes_back_rounded(site: Site) -> None:
    header = json.dumps({"w": {"dtype": "BF16", "shape": [1], "data_offsets": [0, 2]}}).encode().ljust(72)
    site.model.write_bytes(len(header).to_bytes(8, "little") + header + np.array([0x3F80], "<u2").tobytes())
    assert site.run(fit("assert p['w'].dtype == np.float32; p['w'] += 3 * 2**-8")) == 0
    assert site.update.read_bytes()[-2:] == np.array([0x3F82], "<u2").tobytes()  # 1 + 2**-6, half to even


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("del p['bias']", "fit: tensor 'bias' is missing"),
        ("p['extra'] = np.zeros(1)", "fit: tensor 'extra' is not in the global model"),
        ("p['bias'] = np.zeros((2, 1), np.float32)", "fit: tensor 'bias': shape [2, 1] -> [2]"),
        ("p['bias'] = np.zeros(2)", "fit: tensor 'bias': dtype float64 -> float32 (F32)"),
        ("p['bias'] = np.zeros(2, '>f4')", "fit: tensor 'bias': dtype >f4 -> float32 (F32)"),
        ("p = {k: np.zeros(9) for k in p}", "(and 1 more)"),
        ("p = [1]", "fit: parameters is a list -> a dict of tensor name -> array"),
        ("n = 0", "fit: num_examples is 0 -> a whole number of at least 1"),
        ("n = True", "fit: num_examples is True"),
        ("n = 1.5", "fit: num_examples is 1.5"),
        ("m = {'loss': float('nan')}", "fit: metrics: 'loss' is nan -> a finite number"),
        ("m = {'loss': 10**400}", "-> a finite number"),
        ("m = {'loss': 'low'}", "fit: metrics: 'loss' is 'low'"),
        ("m = {'loss': True}", "fit: metrics: 'loss' is True"),
        ("m = {'loss': [1]}", "fit: metrics: 'loss' is [1]"),
        ("m = {1: 1}", "fit: metrics: the name 1 is not text"),
        ("m = [1]", "fit: metrics is a list -> a dict of name -> number"),
        ("raise ValueError('no scans\\nin folder')", "raised ValueError: no scans in folder"),
        ("return None", "fit returned a NoneType -> a fedops.FitResult"),
    ],
)
def test_what_is_wrong_with_a_result_is_said_in_one_line(body: str, says: str, site: Site) -> None:
    assert site.run(fit(body)) == 1
    assert says in site.says()
    assert "\n" not in site.says()
    assert not site.result.exists()


@pytest.mark.parametrize(
    ("client", "says"),
    [
        ("nowhere:C", "no module named 'nowhere' (started in another folder?)"),
        ("ours.sub:C", "no module named 'ours.sub'"),
        ("ours:D", "module 'ours' has no 'D'"),
        ("ours:C.inner", "module 'ours' has no 'C.inner'"),
        ("ours:np.int64", "has no method fit(parameters, config)"),
    ],
)
def test_a_client_that_cannot_be_made_is_named(client: str, says: str, site: Site) -> None:
    assert site.run(fit("pass"), client) == 1
    assert says in site.says()


def test_a_library_that_the_clients_module_misses_is_named(site: Site, capfd: pytest.CaptureFixture[str]) -> None:
    assert site.run("import torch_that_is_not_here\n") == 1
    assert site.says() == "no module named 'torch_that_is_not_here'"
    assert "ours.py" in capfd.readouterr().err


def test_an_attribute_error_of_the_module_itself_is_not_taken_for_a_missing_class(site: Site) -> None:
    assert site.run("sys.no_such_thing\n") == 1
    assert site.says() == "raised AttributeError: module 'sys' has no attribute 'no_such_thing'"


def test_leaving_by_sys_exit_is_left_to_the_process(site: Site) -> None:
    with pytest.raises(SystemExit):
        site.run(fit("sys.exit(4)"))
    assert not site.fault.exists()


def test_a_global_model_that_cannot_be_opened_is_named(site: Site) -> None:
    site.model.write_bytes(b"")
    assert site.run(fit("pass")) == 1
    assert site.says() == "model.safetensors: cannot be opened: format_unknown"
