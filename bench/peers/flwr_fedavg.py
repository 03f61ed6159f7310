"""Flower's weighted mean on files, by its message API: FOLDER/site-*.safetensors -> OUT.

    python flwr_fedavg.py FOLDER OUT

What its FedAvg strategy does with the replies of a round: an ArrayRecord per site, then `aggregate_arrayrecords`.
Its network is left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

begin = time.perf_counter()
folder, out = map(Path, sys.argv[1:])

import numpy as np  # noqa: E402 the imports are timed
from flwr.app import Array, ArrayRecord, MetricRecord, RecordDict  # noqa: E402
from flwr.serverapp.strategy.strategy_utils import aggregate_arrayrecords  # noqa: E402
from safetensors.numpy import load_file, save_file  # noqa: E402

laps = {"import": time.perf_counter() - begin, "load": 0.0, "records": 0.0}
examples = json.loads((folder / "data.json").read_text())["num_examples"]
replies = []
for site in sorted(examples):
    begin = time.perf_counter()
    tensors = load_file(folder / f"{site}.safetensors")
    loaded = time.perf_counter()
    arrays = ArrayRecord({name: Array(tensor) for name, tensor in tensors.items()})
    replies.append(RecordDict({"arrays": arrays, "metrics": MetricRecord({"num-examples": float(examples[site])})}))
    del tensors
    laps["load"] += loaded - begin
    laps["records"] += time.perf_counter() - loaded
begin = time.perf_counter()
mean = aggregate_arrayrecords(replies, "num-examples")
laps["aggregate"] = time.perf_counter() - begin
begin = time.perf_counter()
save_file({name: np.ascontiguousarray(array.numpy(), np.float32) for name, array in mean.items()}, out)
laps["save"] = time.perf_counter() - begin
print(json.dumps({lap: round(seconds, 3) for lap, seconds in laps.items()}))
