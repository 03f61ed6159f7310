"""What fedops needs from outside, as Protocols; adapters implement them, tests fake them."""

from fedops.ports.forge import Forge, ForgeProbe, Releases
from fedops.ports.machine import Clock, Machine, Progress, Trainer, TrainingJob, YamlEditor
from fedops.ports.models import Models, ModelSink, OpenModel
from fedops.ports.repository import Repository
from fedops.ports.store import BlobReader, InPlace, Store, Streaming, WriteProbe
from fedops.ports.workflows import Conclusion, Dispatch, WorkflowRequest, WorkflowResult, WorkflowRunner

__all__ = [
    "BlobReader",
    "Clock",
    "Conclusion",
    "Dispatch",
    "Forge",
    "ForgeProbe",
    "InPlace",
    "Machine",
    "ModelSink",
    "Models",
    "OpenModel",
    "Progress",
    "Releases",
    "Repository",
    "Store",
    "Streaming",
    "Trainer",
    "TrainingJob",
    "WorkflowRequest",
    "WorkflowResult",
    "WorkflowRunner",
    "WriteProbe",
    "YamlEditor",
]
