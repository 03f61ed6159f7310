"""The catalogue of everything that fedops can say "no" or "mind" to; texts live here, never at the call site.

A finding is data. Ids and slugs are stable and never used again for another meaning. Each entry's `why` is its
documentation page: what it means, why it matters; `hint` is the next step for the person who must act.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Slug = Literal[
    "policy_invalid",
    "file_kept",
    "format_unknown",
    "file_corrupt",
    "file_too_large",
    "pickle_refused",
    "hash_mismatch",
    "size_mismatch",
    "object_missing",
    "empty_update",
    "missing_keys",
    "unexpected_keys",
    "duplicate_key",
    "shape_mismatch",
    "dtype_mismatch",
    "dtype_unsupported",
    "tensor_name_invalid",
    "non_finite",
    "norm_exceeded",
    "metadata_invalid_json",
    "metadata_schema",
    "num_examples_invalid",
    "metrics_invalid",
    "timestamp_invalid",
    "base_version_unknown",
    "too_stale",
    "duplicate_submission",
    "payload_refused",
    "metadata_dropped",
    "site_unknown",
    "site_id_invalid",
    "site_id_reserved",
    "site_mismatch",
    "site_suspended",
    "signature_invalid",
    "path_not_allowed",
    "symlink_refused",
    "submodule_refused",
    "mode_refused",
    "path_case_conflict",
    "head_moved",
    "commit_shape",
    "files_missing",
    "dvc_schema",
    "dvc_path_escape",
    "layer_title_invalid",
    "foreign_layer_refused",
    "digest_mismatch",
    "annotation_mismatch",
    "no_weight",
    "non_finite_result",
    "too_few_updates",
    "krum_too_few",
    "trim_too_large",
    "share_capped",
    "tag_moved",
    "tag_name_invalid",
    "record_mismatch",
    "model_mismatch",
    "policy_mismatch",
    "update_missing",
    "tag_missing",
    "lineage_broken",
    "object_corrupt",
    "record_unreadable",
    "overtaken",
    "exclusion_unchecked",
    "unavailable_present",
    "credential_scope",
    "auth_failed",
    "rate_limited",
    "registry_unavailable",
    "github_rejected",
    "aggregate_conflict",
]


@dataclass(frozen=True)
class Rule:
    """One entry of the catalogue."""

    id: str
    text: str  # what is wrong, without where, got and expected
    hint: str
    why: str
    severity: Literal["error", "warning"] = "error"


@dataclass(frozen=True)
class Finding:
    """One statement that failed (error) or that a person should know (warning)."""

    id: str  # "FO-214", never reused
    slug: Slug
    severity: Literal["error", "warning"]
    where: str  # path, "path:line", "submissions/2", "pull/12"
    got: Any = None  # typed: [4, 2], not "[4, 2]"
    expected: Any = None
    detail: Mapping[str, Any] | None = None  # {"tensor": "head.weight"}, {"keys": [...]}, {"site": ...}


_R = Rule
CATALOGUE: dict[Slug, Rule] = {
    "policy_invalid": _R(
        "FO-101",
        "a policy cannot be used",
        "correct the file and push it to main; `fedops doctor` reads it as CI does",
        "Policies are reviewed files that decide what is merged. One that cannot be read stops everything, so that nothing is decided by accident.",
    ),
    "file_kept": _R(
        "FO-102",
        "the file is there already and differs from what init writes; it was left as it is",
        "nothing, if it is meant so; else move it away, commit that, and run `fedops init` again",
        "init adds files and never overwrites one: what people wrote or changed stays. The federation works with the file as it is, or init says what is wrong with it.",
        "warning",
    ),
    "format_unknown": _R(
        "FO-201",
        "the file is not a model",
        "hand in a .safetensors or .npz file that your training wrote",
        "Only safetensors and npz are opened. A pointer file, a web page, a table or an archive is refused by its content, so that data cannot leave a site by mistake.",
    ),
    "file_corrupt": _R(
        "FO-202",
        "the model file cannot be read to its end",
        "write the file again; if it was copied, copy it again",
        "The container is truncated, has wrong offsets or a wrong checksum. Half a model must never be averaged.",
    ),
    "file_too_large": _R(
        "FO-203",
        "the file is larger than the policy allows",
        "hand in a smaller model, or ask the lead to raise `limits` in policies/submission.yaml",
        "Sizes are checked from headers before any memory is used, so that a small file that expands a thousandfold cannot stop the federation.",
    ),
    "pickle_refused": _R(
        "FO-204",
        "the file contains a pickle",
        "save plain arrays: numpy.savez(path, **arrays) or safetensors.numpy.save_file(arrays, path)",
        "Reading a pickle runs code of whoever wrote it. fedops never does.",
    ),
    "hash_mismatch": _R(
        "FO-205",
        "the bytes do not have the digest that was declared",
        "run `fedops submit` again with the file that you trained",
        "Everything that is reviewed, merged and aggregated is named by digest. Other bytes are another model.",
    ),
    "size_mismatch": _R(
        "FO-206",
        "the number of bytes differs from the one declared",
        "run `fedops submit` again",
        "The size is declared with the digest, so that a reader knows how much to expect before it starts.",
    ),
    "object_missing": _R(
        "FO-207",
        "the store does not have these bytes",
        "run `fedops submit` again; it uploads what is missing",
        "A record in git names bytes that nobody can fetch. Such a submission is skipped and is not used up.",
    ),
    "empty_update": _R(
        "FO-210",
        "the update has no tensors",
        "save all tensors of the model",
        "An update without tensors cannot be averaged.",
    ),
    "missing_keys": _R(
        "FO-211",
        "tensors of the base model are absent",
        "save all tensors of the global model, by the same names; `fedops show` lists them",
        "Tensors are matched by name. Averaging only those that all sites share would silently freeze the rest.",
    ),
    "unexpected_keys": _R(
        "FO-212",
        "there is content that the base model does not have",
        "remove it; `fedops show` lists the tensors of the global model",
        "Extra tensors and free metadata could carry data out of a site, and no version could use them.",
    ),
    "duplicate_key": _R(
        "FO-213",
        "the same tensor name stands twice in the file",
        "write the file with a common library",
        "Readers disagree about which of the two counts, so two people could review different models.",
    ),
    "shape_mismatch": _R(
        "FO-214",
        "a tensor has another shape than in the base model",
        "train on the current global version: `fedops pull`",
        "numpy would stretch some shapes silently. Shapes must be equal, without reshaping.",
    ),
    "dtype_mismatch": _R(
        "FO-215",
        "a tensor has another dtype than in the base model",
        "save the tensor in the dtype of the global model",
        "A cast loses precision or range; the site must decide it, not the aggregator.",
    ),
    "dtype_unsupported": _R(
        "FO-216",
        "a tensor's dtype is not supported",
        "use F64 F32 F16 BF16, I64 I32 I16 I8, U64 U32 U16 U8 or BOOL",
        "Only plain numbers can be aggregated with an exact result.",
    ),
    "tensor_name_invalid": _R(
        "FO-217",
        "a tensor name is not a plain name",
        "rename the tensor: printable characters, no path parts, at most 256 characters",
        "Names end up in reports and paths; control characters and path tricks are refused.",
    ),
    "non_finite": _R(
        "FO-218",
        "a float tensor contains NaN or infinity",
        "look at the training run (learning rate, empty batches); train again before you submit",
        "One NaN in one update makes the whole averaged model NaN.",
    ),
    "norm_exceeded": _R(
        "FO-219",
        "the update moves the model further than the policy allows",
        "check the data and the learning rate; the limit is `update_norm_max` in policies/submission.yaml",
        "The norm of the whole difference to the base bounds what one site can do to the model.",
    ),
    "metadata_invalid_json": _R(
        "FO-220",
        "the record is not strict JSON",
        "let `fedops submit` write it",
        "NaN, repeated keys, a byte order mark, deep nesting: readers disagree about such text.",
    ),
    "metadata_schema": _R(
        "FO-221",
        "a field of the record is missing, unknown or of the wrong type",
        "let `fedops submit` write it",
        "Records are exact: nothing is guessed and nothing extra is carried.",
    ),
    "num_examples_invalid": _R(
        "FO-222",
        "num_examples is not a whole number from 1 to the policy's maximum",
        "give the number of local training examples: --examples N",
        "It is the weight in the average. Zero, fractions and absurd claims would break or own the model.",
    ),
    "metrics_invalid": _R(
        "FO-223",
        "metrics is not a flat map of allowed names to finite numbers",
        "hand in only metrics that policies/submission.yaml allows, as finite numbers",
        "Metrics are averaged and shown to everybody, so their names are fixed by policy.",
    ),
    "timestamp_invalid": _R(
        "FO-224",
        "a time is not RFC 3339 with a zone",
        "write 2026-03-02T09:30:00Z",
        "A time without a zone means different moments in different places.",
    ),
    "base_version_unknown": _R(
        "FO-225",
        "the base version is not a global version that may be used",
        "run `fedops pull` and train on the version it gives",
        "An update counts as a difference to the version it was trained on; that version must exist and must be this one.",
    ),
    "too_stale": _R(
        "FO-226",
        "the base version is older than the policy allows",
        "run `fedops pull`, train on the current version and submit again",
        "Very old updates pull the model back. The limit is `staleness.max` in policies/aggregation.yaml.",
    ),
    "duplicate_submission": _R(
        "FO-227",
        "these bytes or this base version were already handed in",
        "train on the current version: `fedops pull`",
        "Nothing counts twice: neither a site on one base version, nor the same bytes under two names.",
    ),
    "payload_refused": _R(
        "FO-228",
        "the policy does not allow this payload",
        "see `payloads` in policies/submission.yaml",
        "How an update is encoded changes what can be checked, so the lead decides it.",
    ),
    "metadata_dropped": _R(
        "FO-229",
        "free metadata in the file is dropped",
        "nothing to do; `fedops submit` writes the file without it",
        "Metadata could carry anything, and changes the digest from run to run.",
        "warning",
    ),
    "site_unknown": _R(
        "FO-230",
        "the site is not on the roster",
        "ask the lead to add it: `fedops site add`",
        "Only sites in policies/sites.yaml of the base branch may hand in.",
    ),
    "site_id_invalid": _R(
        "FO-231",
        "the site id is not valid",
        "use lower-case letters, digits and inner dashes, at most 63 characters",
        "The id is a folder, a registry repository and part of a branch name; it is refused, never corrected silently.",
    ),
    "site_id_reserved": _R(
        "FO-232",
        "the site id is reserved",
        "choose another id",
        "Names such as global or archive would collide with the federation's own, con or nul cannot be a folder on Windows.",
    ),
    "site_mismatch": _R(
        "FO-233",
        "the account, the folder and the record do not name the same site",
        "hand in from the account and folder of your own site",
        "Who may write where is read from the roster and the pull request, never from a file inside it.",
    ),
    "site_suspended": _R(
        "FO-234",
        "the site is suspended",
        "ask the lead",
        "The lead paused this site in policies/sites.yaml; its submissions are kept but not used.",
    ),
    "signature_invalid": _R(
        "FO-235",
        "the commit does not carry a valid signature of a key of the site",
        "submit with the key whose public half is in policies/sites.yaml: `fedops join --key PATH`",
        "On a plain git server anybody can write any author name; the signature is the identity.",
    ),
    "path_not_allowed": _R(
        "FO-240",
        "the change touches a path that a submission may not touch",
        "hand in with `fedops submit`; propose other changes in a pull request of their own",
        "A submission may change its site's own known files and nothing else, so that a review has to look at one thing.",
    ),
    "symlink_refused": _R(
        "FO-241",
        "the path is a symbolic link",
        "hand in with `fedops submit`",
        "A link can point anywhere, also out of the repository.",
    ),
    "submodule_refused": _R(
        "FO-242",
        "the path is a submodule",
        "hand in with `fedops submit`",
        "A submodule brings in another repository that nobody reviewed.",
    ),
    "mode_refused": _R(
        "FO-243",
        "the file has a mode other than 100644",
        "hand in with `fedops submit`",
        "Records and pointers are plain files; an executable one has another purpose.",
    ),
    "path_case_conflict": _R(
        "FO-244",
        "two paths are equal after case folding or unicode normalisation",
        "rename one of them",
        "On many machines only one of the two can be checked out, so people would see different content.",
    ),
    "head_moved": _R(
        "FO-245",
        "the commit that was checked is not the head any more",
        "nothing to do; the new head is checked by itself",
        "A verdict and an approval belong to one commit.",
    ),
    "commit_shape": _R(
        "FO-246",
        "a submission is exactly one commit on an ancestor of main",
        "run `fedops submit` again; it rebuilds the branch",
        "One commit is one submission: reviewable, signed, and nothing hidden in between.",
    ),
    "files_missing": _R(
        "FO-247",
        "a submission's record or pointer is missing",
        "run `fedops submit` again",
        "The record and its pointer are handed in together.",
    ),
    "dvc_schema": _R(
        "FO-250",
        "the pointer is not the one that belongs to the record",
        "let `fedops submit` write it; on Windows keep LF line ends (the repository's .gitattributes does it)",
        "The pointer must be byte for byte what fedops renders from the record, so a site's YAML is never interpreted.",
    ),
    "dvc_path_escape": _R(
        "FO-251",
        "the pointer's output leaves its folder",
        "let `fedops submit` write it",
        "`dvc pull` would write there, also outside the repository.",
    ),
    "layer_title_invalid": _R(
        "FO-252",
        "the artifact's layer has a title other than the fixed file name",
        "let `fedops submit` upload it",
        "Tools take the title as a file name; it could lead out of the target folder.",
    ),
    "foreign_layer_refused": _R(
        "FO-253",
        "the artifact is not one plain model layer",
        "let `fedops submit` upload it",
        "Layers that live elsewhere, several layers, or unknown types are not what was reviewed.",
    ),
    "digest_mismatch": _R(
        "FO-254",
        "bytes in the store do not have the digest asked for",
        "the store is damaged or dishonest: upload again and tell its operator",
        "A store is never trusted: everything is checked against the digest in git.",
    ),
    "annotation_mismatch": _R(
        "FO-255",
        "the artifact's annotations differ from the record",
        "run `fedops submit` again",
        "People look at the registry too; it must not tell another story than git.",
    ),
    "no_weight": _R(
        "FO-301",
        "the weights sum to zero",
        "see num_examples and `staleness` in policies/aggregation.yaml",
        "A mean without weight is not a number.",
    ),
    "non_finite_result": _R(
        "FO-302",
        "the result does not fit the tensor's dtype",
        "look at the norms of the updates; nothing was written",
        "An overflow would turn into infinity or wrap around; no version is made instead.",
    ),
    "too_few_updates": _R(
        "FO-303",
        "there are fewer usable updates than the policy asks for",
        "wait for more sites, or change `trigger.quorum`",
        "A version of too few sites says too much about each of them.",
    ),
    "krum_too_few": _R(
        "FO-304",
        "Krum needs at least 2 f + 3 updates",
        "lower f or wait for more sites",
        "With fewer updates its guarantee does not hold.",
    ),
    "trim_too_large": _R(
        "FO-305",
        "the trimmed mean would cut everything",
        "lower beta or wait for more sites",
        "At least one value must remain in the middle.",
    ),
    "share_capped": _R(
        "FO-306",
        "the largest share cannot be held with so few sites",
        "see `weights.max_share` in policies/aggregation.yaml",
        "With K sites no share can be below 1/K; all sites count the same here.",
        "warning",
    ),
    "tag_moved": _R(
        "FO-401",
        "a version tag is not the one that was made with the version",
        "`fedops verify` says which commit it should name; ask the lead",
        "Tags name versions for everybody. One that moved, lost its message or was made by hand names something else.",
    ),
    "tag_name_invalid": _R(
        "FO-402",
        "the tag or reference cannot be parsed",
        "write global@v9.0.0 for a version's tag",
        "One grammar, read and written in one place.",
    ),
    "record_mismatch": _R(
        "FO-403",
        "the version record does not follow from the repository",
        "see the fields named; ask the lead what happened",
        "Everything in the record but its witness recomputes from git and the bytes. A difference means that one of them was changed.",
    ),
    "model_mismatch": _R(
        "FO-404",
        "the model's bytes do not follow from its contributions",
        "ask the lead what happened; do not use this version",
        "Recomputing the version from its inputs gave other bytes.",
    ),
    "policy_mismatch": _R(
        "FO-405",
        "the policies are not those under which the version was made",
        "see the policy digest in the version record",
        "A version is bound to the exact text of its policies.",
    ),
    "update_missing": _R(
        "FO-406",
        "the bytes of a contribution are not in the store",
        "restore them from the archive, or accept the lower level that verify reached",
        "Without its inputs a version can be checked by lineage only.",
    ),
    "tag_missing": _R(
        "FO-407",
        "a version has no tag",
        "push the tag again from a clone that has it; `fedops verify` says which commit it names",
        "The tag follows the record; until it is there people cannot name the version.",
    ),
    "lineage_broken": _R(
        "FO-408",
        "the history of main is not the one that fedops makes",
        "see the commit named; ask the lead what happened",
        "Each version is one commit on main that changes global/ alone and follows from the one before.",
    ),
    "object_corrupt": _R(
        "FO-409",
        "git cannot read an object",
        "clone again from a good copy; `git fsck` lists the damage",
        "A raw byte of the repository was changed or lost.",
    ),
    "record_unreadable": _R(
        "FO-410",
        "a record on main cannot be used",
        "the site hands in again: `fedops submit`",
        "It was merged by hand or names a version that does not exist; it never counts.",
        "warning",
    ),
    "overtaken": _R(
        "FO-411",
        "the submission arrived after its base version was already used",
        "train on the current version: `fedops pull`",
        "A running version had read this site's earlier submission on the same base; the later one is not used.",
        "warning",
    ),
    "exclusion_unchecked": _R(
        "FO-412",
        "an exclusion that rests on an update's bytes cannot be repeated, since they are gone",
        "ask the site for the bytes, or take the exclusion on the lead's word",
        "Archived are only the inputs that a version used; the others stay in their site's store as long as the site likes.",
        "warning",
    ),
    "unavailable_present": _R(
        "FO-413",
        "an update that a version left out as unavailable is in the store, whole",
        "ask the lead; the submission was not used up, so that the next version reads it again",
        "That bytes could not be had at some moment is witnessed by the run that made the version, and nobody can repeat it. Bytes that came back look the same as a site that was left out on purpose.",
        "warning",
    ),
    "credential_scope": _R(
        "FO-501",
        "credentials would go to another host",
        "check the store's address in federation.yaml",
        "A password is sent only to the host it is for.",
    ),
    "auth_failed": _R(
        "FO-502",
        "the server refused the credentials",
        "log in again; `fedops doctor` checks them",
        "Not authenticated, or not allowed.",
    ),
    "rate_limited": _R(
        "FO-503",
        "the server asks to slow down",
        "try again later",
        "Limits outlasted the retries.",
    ),
    "registry_unavailable": _R(
        "FO-504",
        "the store does not answer",
        "try again later; nothing was lost",
        "A broken store makes no version.",
    ),
    "github_rejected": _R(
        "FO-505",
        "the forge refused the request",
        "see the message; `fedops doctor` checks the settings",
        "Repeating would not help.",
    ),
    "aggregate_conflict": _R(
        "FO-506",
        "another run published a version first",
        "nothing to do; the next run works on top of it",
        "The push of main and tag is the compare-and-swap: exactly one wins.",
    ),
}


def finding(
    slug: Slug, where: str, *, got: Any = None, expected: Any = None, detail: Mapping[str, Any] | None = None
) -> Finding:
    """Make one finding of the catalogue.

    Args:
        slug: key of CATALOGUE.
        where: path, "path:line", "submissions/2" or "pull/12".
        got: what was found, typed as in JSON.
        expected: what should have been there, typed as in JSON.
        detail: further typed facts, such as {"tensor": "head.weight"} or {"site": "hospital-a"}.
    """
    rule = CATALOGUE[slug]
    return Finding(rule.id, slug, rule.severity, where, got, expected, detail)


def slug_of(text: str) -> Slug:
    """Read a slug out of a document; one that this version does not know becomes `record_unreadable`."""
    return text if text in CATALOGUE else "record_unreadable"


def errors(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Those findings that make the answer no."""
    return tuple(f for f in findings if f.severity == "error")


def _show(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    if len(text) > 120:
        text = text[:117] + "..."
    # A site wrote this: no control characters may reach a terminal or a log.
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def message(f: Finding) -> str:
    """`where: what, got -> expected [FO-nnn]`, one line."""
    rule = CATALOGUE[f.slug]
    what = rule.text
    if f.detail:
        what += " (" + ", ".join(f"{k} {_show(v)}" for k, v in f.detail.items()) + ")"
    if f.got is not None and f.expected is not None:
        what += f", {_show(f.got)} -> {_show(f.expected)}"
    elif f.got is not None:
        what += f", got {_show(f.got)}"
    elif f.expected is not None:
        what += f", expected {_show(f.expected)}"
    return f"{_show(f.where)}: {what} [{f.id}]"


def hint(f: Finding) -> str:
    """The next step for the person who must act."""
    return CATALOGUE[f.slug].hint


def as_json(f: Finding) -> dict[str, Any]:
    """The finding as every `--format json` document shows it."""
    return {
        "id": f.id,
        "slug": f.slug,
        "severity": f.severity,
        "where": f.where,
        "got": f.got,
        "expected": f.expected,
        "detail": dict(f.detail) if f.detail is not None else None,
    }


SLUGS: tuple[Slug, ...] = get_args(Slug)
