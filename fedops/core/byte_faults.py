"""What can be wrong with the bytes of one submission, as slugs: whether they may come back decides what becomes of it."""

from __future__ import annotations

# What a store can say of one object without being broken itself: it is not there, or has other bytes than its digest
# says (both may pass: unavailable); or a manifest that is whole says what no submission may (which never passes).
GONE: frozenset[str] = frozenset({"object_missing"})
WRONG: frozenset[str] = frozenset({"hash_mismatch", "size_mismatch", "digest_mismatch"})
REFUSED: frozenset[str] = frozenset({"foreign_layer_refused", "layer_title_invalid", "annotation_mismatch"})
# What is said of a submission whose site closed its repository, or whose own store does not answer.
AWAY: frozenset[str] = frozenset({"auth_failed", "registry_unavailable"})
# Why a version may leave a submission out without using it up.
UNAVAILABLE: frozenset[str] = GONE | WRONG | AWAY
