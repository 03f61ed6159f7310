from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import fedops
from fedops.core.client import Client, EvaluateResult, FitResult


def test_the_contract_is_exported_at_the_top() -> None:
    assert (fedops.Client, fedops.FitResult, fedops.EvaluateResult) == (Client, FitResult, EvaluateResult)


def test_another_name_is_an_attribute_error_as_in_any_module() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Server'"):
        _ = fedops.Server


def test_importing_the_contract_imports_no_numpy() -> None:
    code = "import sys; from fedops import Client, FitResult; print('numpy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "False"


def test_a_class_that_derives_from_client_may_leave_out_what_it_does_not_need() -> None:
    class Trains(Client):
        def fit(self, parameters: object, config: object) -> FitResult:
            return FitResult({"w": np.zeros(1, np.float32)}, 3)

    result = Trains().fit({}, {})  # type: ignore[abstract]  # for mypy the methods of a Protocol are abstract
    assert (result.num_examples, dict(result.metrics)) == (3, {})
