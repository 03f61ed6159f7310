"""Whether what people write on main can be used, and whether this version of fedops can compute what a policy asks for.

Imports no numpy, since `fedops status` asks too.
"""

from __future__ import annotations

from collections.abc import Mapping

from fedops.core.documents import Document, load_document
from fedops.core.errors import ConfigError, MainFileError
from fedops.core.ids import (
    AGGREGATION_PATH,
    FEDERATION_PATH,
    SITES_PATH,
    SUBMISSION_POLICY_PATH,
    TRAINING_PATH,
    RepoPath,
)
from fedops.core.policy import trigger_of
from fedops.core.settings import Aggregation, Federation, Sites, SubmissionPolicy, Training
from fedops.core.strategies import make_strategy
from fedops.core.yaml_reader import parse_yaml

WRITTEN: Mapping[RepoPath, type[Document]] = {
    FEDERATION_PATH: Federation,
    SITES_PATH: Sites,
    SUBMISSION_POLICY_PATH: SubmissionPolicy,
    TRAINING_PATH: Training,
    AGGREGATION_PATH: Aggregation,
}
_HINT = "a lead corrects it on main; until then no version is made, and nothing that was handed in is lost"


def refuse_unusable(path: RepoPath, data: bytes, where: str) -> None:
    """Stop where one of the documents that people write cannot be used as it is written.

    Args:
        path: one of WRITTEN.
        where: for the message.

    Raises:
        MainFileError: `where:line: key: message`.
    """
    try:
        document = load_document(data, WRITTEN[path], where)
    except ConfigError as e:
        raise MainFileError(e.message, hint=MainFileError.CORRECTED) from e
    if isinstance(document, Aggregation):
        refuse_rules_as_written(document, data, where)


def refuse_unavailable_rules(policy: Aggregation, text: bytes = b"", where: str = AGGREGATION_PATH) -> None:
    """Stop where the policy asks for something that this version of fedops does not compute.

    Args:
        text: the document as it is written, so that its lines can be named; empty: nobody has it at hand.
        where: for the messages.

    Raises:
        MainFileError: differential privacy, or a strategy that is not known or not with these parameters, or that on
            some numbers of updates cannot be used at all.
    """
    if policy.privacy is not None:
        raise MainFileError(
            f"{_at(where, text, 'privacy')}: privacy: not available in this version -> null", hint=_HINT
        )
    try:
        strategy = make_strategy(policy.strategy)
    except ConfigError as e:
        raise MainFileError(f"{_at(where, text, 'strategy')}: {e.message}", hint=_HINT) from e
    if strategy.least is None:
        given = ", ".join(f"{name} {value}" for name, value in strategy.parameters.items())
        fault = f"strategy {strategy.name}: {given} leaves nothing of some numbers of updates -> less"
        raise MainFileError(f"{_at(where, text, 'strategy')}: {fault}", hint=_HINT)


def refuse_rules_as_written(policy: Aggregation, text: bytes, where: str = AGGREGATION_PATH) -> None:
    """Stop also where the policy says what does not hold: a quorum of which its strategy makes no version.

    CI waits for as many as the strategy needs (`trigger_of`), so that a policy of which nobody noticed it does no harm.

    Args:
        text, where: as in `refuse_unavailable_rules`.

    Raises:
        MainFileError: as there; or the quorum is too low.
    """
    refuse_unavailable_rules(policy, text, where)
    quorum, needed = policy.trigger.quorum, trigger_of(policy).quorum
    if quorum < needed:
        given = "".join(f" {name} {value}" for name, value in policy.strategy.parameters.items())
        fault = f"trigger.quorum: {quorum} -> {needed}, as strategy {policy.strategy.name}{given} needs"
        raise MainFileError(
            f"{_at(where, text, 'trigger', 'quorum')}: {fault}", hint=f"CI waits for {needed} meanwhile"
        )


def _at(where: str, text: bytes, *key: str) -> str:
    """Where a key of the policy is written, or the last one above it that is."""
    lines = parse_yaml(text, where)[1] if text else {}
    while key and key not in lines:
        key = key[:-1]
    return f"{where}:{lines[key]}" if key else where
