"""NVIDIA FLARE's weighted mean on files: FOLDER/site-*.safetensors -> OUT.

    python nvflare_fedavg.py FOLDER OUT numpy|torch|offload|intime

numpy    WeightedAggregationHelper, what its FedAvg controllers use, fed one site at a time
torch    the same with torch tensors, which it adds in place
offload  the same with its references to tensors on disk
intime   InTimeAccumulateWeightedAggregator: accept() and aggregate()

Its network is left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

begin = time.perf_counter()
folder, out, way = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]

examples = json.loads((folder / "data.json").read_text())["num_examples"]
files = {site: folder / f"{site}.safetensors" for site in sorted(examples)}


def with_helper() -> dict[str, Any]:
    """The mean by the aggregation helper."""
    from nvflare.app_common.aggregators.weighted_aggregation_helper import WeightedAggregationHelper

    helper = WeightedAggregationHelper()
    for site, path in files.items():
        if way == "offload":
            from nvflare.app_opt.pt.lazy_tensor_dict import _LazyRef
            from safetensors import safe_open

            with safe_open(path, framework="pt") as file:
                tensors = {name: _LazyRef(str(path), name, None) for name in file.keys()}  # noqa: SIM118 no mapping
        elif way == "torch":
            from safetensors.torch import load_file

            tensors = load_file(path)
        else:
            from safetensors.numpy import load_file

            tensors = load_file(path)
        helper.add(tensors, float(examples[site]), site, 0)
        del tensors
    return helper.get_result()


def in_time() -> dict[str, Any]:
    """The mean by the aggregator component."""
    from nvflare.apis.dxo import DXO, DataKind, MetaKey, from_shareable
    from nvflare.apis.event_type import EventType
    from nvflare.apis.fl_constant import ReservedKey
    from nvflare.apis.fl_context import FLContext
    from nvflare.app_common.aggregators.intime_accumulate_model_aggregator import InTimeAccumulateWeightedAggregator
    from nvflare.app_common.app_constant import AppConstants
    from safetensors.numpy import load_file

    aggregator = InTimeAccumulateWeightedAggregator(expected_data_kind=DataKind.WEIGHTS)
    context = FLContext()
    context.set_prop(AppConstants.CURRENT_ROUND, 0)
    aggregator.handle_event(EventType.START_RUN, context)
    for site, path in files.items():
        meta = {MetaKey.NUM_STEPS_CURRENT_ROUND: float(examples[site])}
        reply = DXO(DataKind.WEIGHTS, data=load_file(path), meta=meta).to_shareable()
        reply.set_peer_props({ReservedKey.IDENTITY_NAME: site})
        reply.add_cookie(AppConstants.CONTRIBUTION_ROUND, 0)
        if not aggregator.accept(reply, context):
            raise SystemExit(f"{site}: not accepted")
        del reply
    return from_shareable(aggregator.aggregate(context)).data


mean = in_time() if way == "intime" else with_helper()
if way in ("torch", "offload"):
    from safetensors.torch import save_file

    save_file(mean, out)
else:
    import numpy as np
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(tensor) for name, tensor in mean.items()}, out)
print(json.dumps({"seconds": round(time.perf_counter() - begin, 3)}))
