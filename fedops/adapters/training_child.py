"""The wrapper process around a site's client: reads the global model, calls `fit`, writes what it returned.

Runs as `python -m fedops.adapters.training_child REQUEST`; knows nothing of git, store or forge.
"""

from __future__ import annotations

import importlib
import json
import math
import operator
import os
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedops.adapters.model_files import ModelFiles
from fedops.core.casts import narrow, storage
from fedops.core.documents import Json
from fedops.core.facts import Dtype, Specs, TensorSpec
from fedops.core.settings import Limits
from fedops.core.tensors import canonical_layout


class Unusable(Exception):  # noqa: N818 reads better at the except clause
    """What the client is or returned cannot be used; one line for its author."""


def array_dtype(dtype: Dtype) -> np.dtype[Any]:
    """The numpy dtype that a client sees; numpy has no bfloat16, and each such value is exactly a float32."""
    return np.dtype("<f4") if dtype == "BF16" else storage(dtype)


def load_parameters(path: Path) -> tuple[Specs, dict[str, NDArray[Any]]]:
    """Read a global model into arrays of their own dtype and shape, in the model's tensor order."""
    size = max(path.stat().st_size, 1)
    limits = Limits(update_bytes=size, expanded_bytes=size, header_bytes=size, tensors=1_000_000)
    model, findings = ModelFiles().open(path, limits, path.name)
    if model is None:
        raise Unusable(f"{path.name}: cannot be opened: {findings[0].slug}")
    with model:
        return dict(model.specs), {
            name: model.read(name, 0, math.prod(spec.shape)).astype(array_dtype(spec.dtype)).reshape(spec.shape)
            for name, spec in model.specs.items()
        }


def save_parameters(path: Path, specs: Specs, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write the canonical file of tensors that passed checked_parameters; BF16 is rounded half to even."""
    with ModelFiles().create(path, specs, md5=False) as sink:
        for placed in canonical_layout(specs):
            flat = np.ascontiguousarray(arrays[placed.name]).reshape(-1)
            if placed.spec.dtype == "BF16":
                stored = np.empty(flat.shape, storage("BF16"))
                narrow(flat.astype(np.float64), "BF16", stored)
                flat = stored
            sink.append(flat.view(np.uint8).data)
        sink.commit()


def checked_parameters(returned: object, specs: Specs) -> dict[str, NDArray[Any]]:
    """The returned tensors, if names, shapes and dtypes are those of the global model.

    Raises:
        Unusable: names the first tensors that differ, with got -> expected.
    """
    if not isinstance(returned, Mapping):
        raise Unusable(f"fit: parameters is a {type(returned).__name__} -> a dict of tensor name -> array")
    faults = [f"tensor {name!r} is missing" for name in specs if name not in returned]
    faults += [f"tensor {name!r} is not in the global model" for name in returned if name not in specs]
    arrays = {}
    for name, spec in specs.items():
        if name in returned:
            array = np.asarray(returned[name])
            faults += _faults(name, array, spec)
            arrays[name] = array
    if faults:
        more = f" (and {len(faults) - 3} more)" if len(faults) > 3 else ""
        raise Unusable("fit: " + "; ".join(faults[:3]) + more)
    return arrays


def _faults(name: str, array: NDArray[Any], spec: TensorSpec) -> list[str]:
    found = []
    if array.shape != spec.shape:
        found.append(f"tensor {name!r}: shape {list(array.shape)} -> {list(spec.shape)}")
    if array.dtype != array_dtype(spec.dtype):
        found.append(f"tensor {name!r}: dtype {array.dtype} -> {array_dtype(spec.dtype)} ({spec.dtype})")
    return found


def result_document(num_examples: object, metrics: object) -> dict[str, Json]:
    """{"num_examples": N, "metrics": …} of plain numbers; numpy's own number types are taken too.

    Raises:
        Unusable: a field is not what the contract says.
    """
    try:
        count = 0 if isinstance(num_examples, bool) else operator.index(num_examples)  # type: ignore[arg-type]
    except TypeError:
        count = 0
    if count < 1:
        raise Unusable(f"fit: num_examples is {num_examples!r} -> a whole number of at least 1")
    if not isinstance(metrics, Mapping):
        raise Unusable(f"fit: metrics is a {type(metrics).__name__} -> a dict of name -> number")
    return {"num_examples": count, "metrics": {_text(name): _number(name, metrics[name]) for name in metrics}}


def _text(name: object) -> str:
    if not isinstance(name, str):
        raise Unusable(f"fit: metrics: the name {name!r} is not text")
    return name


def _number(name: object, value: object) -> float:
    number = math.nan
    if not isinstance(value, (str, bytes, bool, np.bool_)):
        try:
            number = float(value)  # type: ignore[arg-type]  # anything that is a number
        except (TypeError, ValueError, OverflowError):
            number = math.nan
    if not math.isfinite(number):
        raise Unusable(f"fit: metrics: {name!r} is {value!r} -> a finite number")
    return number


def make_client(dotted: str) -> Any:
    """Import "package.module:Class" and make one.

    Raises:
        Unusable: there is no such name, or it has no `fit`.
    """
    module_name, _, name = dotted.partition(":")
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as e:
        where = " (started in another folder?)" if e.name and module_name.startswith(e.name) else ""
        raise Unusable(f"no module named {e.name!r}{where}") from e
    try:
        made = operator.attrgetter(name)(module)
    except AttributeError as e:
        raise Unusable(f"module {module_name!r} has no {name!r}") from e
    client = made()
    if not callable(getattr(client, "fit", None)):
        raise Unusable("has no method fit(parameters, config)")
    return client


def fit(request: Mapping[str, Json]) -> None:
    """Do what a request of `training_process` asks."""
    specs, parameters = load_parameters(Path(request["model"]))
    client = make_client(request["client"])
    got = client.fit(parameters, request["config"])
    missing = [name for name in ("parameters", "num_examples", "metrics") if not hasattr(got, name)]
    if missing:
        raise Unusable(f"fit returned a {type(got).__name__} -> a fedops.FitResult")
    arrays = checked_parameters(got.parameters, specs)
    save_parameters(Path(request["update"]), specs, arrays)
    # After the model is whole: numbers that are wrong must not cost the training.
    Path(request["result"]).write_text(json.dumps(result_document(got.num_examples, got.metrics)), encoding="utf-8")


def main(arguments: list[str]) -> int:
    """Run one request; what the client's author must know goes into the request's fault file."""
    request = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    sys.path.insert(0, os.getcwd())  # noqa: PTH109 what Python itself would do without -P
    try:
        fit(request)
    except Unusable as e:
        fault = str(e)
        if e.__cause__ is not None:
            traceback.print_exception(e.__cause__)
    except Exception as e:  # noqa: BLE001 the site's code may raise anything
        traceback.print_exception(e)
        fault = f"raised {type(e).__name__}: {e}"
    else:
        return 0
    Path(request["fault"]).write_text(" ".join(fault.split())[:1000], encoding="utf-8")
    return 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
