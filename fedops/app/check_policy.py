"""Check a file that leads write, as CI will read it on main: before it is proposed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from fedops.app.check import Checked
from fedops.app.rules import refuse_rules_as_written
from fedops.core.documents import MAX_DOCUMENT_BYTES, Document, load_document
from fedops.core.errors import ConfigError
from fedops.core.findings import finding
from fedops.core.ids import AGGREGATION_PATH, FEDERATION_PATH, SITES_PATH, SUBMISSION_POLICY_PATH, TRAINING_PATH
from fedops.core.settings import Aggregation, Federation, Sites, SubmissionPolicy, Training

# By their names: a file of another name is none of them, whatever it says of itself.
KINDS: Mapping[str, type[Document]] = {
    Path(path).name: kind
    for path, kind in (
        (FEDERATION_PATH, Federation),
        (SITES_PATH, Sites),
        (SUBMISSION_POLICY_PATH, SubmissionPolicy),
        (TRAINING_PATH, Training),
        (AGGREGATION_PATH, Aggregation),
    )
}


def check_policy(path: Path) -> Checked:
    """Whether a document of main could be used as it is written in this file.

    Raises:
        ConfigError: the file cannot be read, or no document of main has its name.
    """
    kind = KINDS.get(path.name)
    if kind is None:
        raise ConfigError(f"{path}: no document of main has this name -> {', '.join(sorted(KINDS))}")
    try:
        with path.open("rb") as file:
            data = file.read(MAX_DOCUMENT_BYTES + 1)
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror}") from e
    try:
        document = load_document(data, kind, str(path))
        if isinstance(document, Aggregation):
            refuse_rules_as_written(document, data, str(path))
    except ConfigError as e:
        return Checked(str(path), "policy", {}, (finding("policy_invalid", str(path), got=e.message),))
    return Checked(str(path), "policy", {}, ())
