"""One OCI registry, as fedops uses it: blobs and manifests of repositories, by the distribution specification 1.1.

What some registries lack is not needed: no referrers, no ranges, no deletion, no chunks.
"""

from __future__ import annotations

import hashlib
from functools import partial
from urllib.parse import urlencode, urlsplit

import requests

from fedops.adapters.refusals import refusal
from fedops.adapters.registry_auth import DELETE, PULL, PUSH
from fedops.adapters.registry_http import AnswerError, Sent, Wire, finish, joined, read_answer
from fedops.adapters.registry_retry import PassingError, patiently
from fedops.adapters.registry_stream import BlobStream
from fedops.core.artifacts import MANIFEST_TYPE, MAX_MANIFEST_BYTES, Blob, manifest_digest
from fedops.core.documents import BadJson, parse_json
from fedops.core.ids import Digest, digest_of_hex, is_digest
from fedops.ports import Clock

_DIGEST_HEADER = "Docker-Content-Digest"
_MAX_TAGS_BYTES = 8 << 20
_MAX_PAGES = 1000
_SESSION_LOST = frozenset({"BLOB_UPLOAD_UNKNOWN", "BLOB_UPLOAD_INVALID"})  # the registry was restarted meanwhile
_BLOB_LOST = frozenset({"MANIFEST_BLOB_UNKNOWN", "BLOB_UNKNOWN"})


class RegistryClient:
    """Verbs on repositories by their whole name at the registry; each is repeated where a fault may pass."""

    def __init__(self, wire: Wire, clock: Clock) -> None:
        self.wire = wire
        self._clock = clock

    def close(self) -> None:
        self.wire.close()

    def want(self, name: str, *, push: bool = False) -> None:
        """Say what will be done with a repository, so that the first token allows it."""
        self.wire.authority.need(name, PULL, *([PUSH] if push else []))

    # blobs

    def upload(
        self, name: str, blob: Blob, body: Sent, *, source: str | None = None, present: bool | None = None
    ) -> bool:
        """Let a repository have a blob; True if bytes were sent.

        Args:
            body: its bytes; a stream is begun anew for each try.
            source: another repository of this registry that has the blob and may lend it.
            present: False: send without asking whether it is there.

        Raises:
            StoreError: slug digest_mismatch: the body is not the blob.
        """
        self.want(name, push=True)
        if source is not None:
            self.want(source)
        asked = present is None

        def attempt() -> bool:
            return not (asked and self._has(name, blob)) and self._send(name, blob, body, source)

        return patiently(self._clock, attempt)

    def _has(self, name: str, blob: Blob) -> bool:
        where = self._where(name, digest_of_hex(blob.sha256))
        response = self._send_to(
            name, "HEAD", self.wire.container(name).get_blob_url(digest_of_hex(blob.sha256)), where
        )
        if response.status_code == 404:
            finish(response)
            return False
        self.wire.check(response, where, 200)
        finish(response)
        return response.headers.get("Content-Length") in (None, str(blob.size))

    def _send(self, name: str, blob: Blob, body: Sent, source: str | None) -> bool:
        digest = digest_of_hex(blob.sha256)
        where = self._where(name, digest)
        response = self._begin(name, where, digest, source)
        if response.status_code == 201:
            return False
        url = self.wire.location(response, where)
        url += ("&" if urlsplit(url).query else "?") + urlencode({"digest": digest})
        headers = {"Content-Type": "application/octet-stream"}
        response = self.wire.send("PUT", url, where, [name], headers=headers, data=body)
        try:
            self.wire.check(response, where, 201)
        except AnswerError as e:
            if "DIGEST_INVALID" in e.codes:
                error = refusal("digest_mismatch", where, got="other bytes were sent", expected=digest)
                error.hint = "the file was changed while it was sent; repeat the command"
                raise error from e
            if _SESSION_LOST.intersection(e.codes):
                raise PassingError(e) from e
            raise
        finish(response)
        return True

    def _begin(self, name: str, where: str, digest: Digest, source: str | None) -> requests.Response:
        """Open an upload: 202 says where to send, 201 that the blob was lent by `source`."""
        url = self.wire.container(name).upload_blob_url()
        names = [name]
        if source is not None:
            url += "?" + urlencode({"mount": digest, "from": source})
            names.append(source)
        response = self._send_to(name, "POST", url, where, names=names)
        self.wire.check(response, where, 201, 202)
        finish(response)
        return response

    def open(self, name: str, blob: Blob) -> BlobStream:
        """The bytes of a blob, in order, not hashed."""
        self.want(name)
        return BlobStream(self.wire, self._clock, name, blob)

    def read_blob(self, name: str, blob: Blob) -> bytes:
        """A small blob, checked against its digest.

        Raises:
            StoreError: slug object_missing, size_mismatch, digest_mismatch.
        """
        with self.open(name, blob) as stream:
            data = memoryview(bytearray(blob.size))
            done = 0
            while done < blob.size and (count := stream.readinto(data[done:])):
                done += count
        where = self._where(name, digest_of_hex(blob.sha256))
        if done != blob.size:
            raise refusal("size_mismatch", where, got=done, expected=blob.size)
        if (got := hashlib.sha256(data).hexdigest()) != blob.sha256:
            expected = digest_of_hex(blob.sha256)
            raise refusal("digest_mismatch", where, got=digest_of_hex(got), expected=expected)
        return bytes(data)

    def may_upload(self, name: str) -> None:
        """Open an upload and give it up again; raises why that is not allowed."""
        self.want(name, push=True)
        where = self._where(name)
        url = self.wire.container(name).upload_blob_url()

        def attempt() -> requests.Response:
            response = self._send_to(name, "POST", url, where)
            self.wire.check(response, where, 202)
            finish(response)
            return response

        response = patiently(self._clock, attempt)
        finish(self.wire.send("DELETE", self.wire.location(response, where), where, [name]))  # else it times out there

    # manifests

    def manifest(self, name: str, reference: str) -> bytes:
        """Manifest bytes by digest or tag, up to one byte more than is allowed; not checked.

        Raises:
            StoreError: slug object_missing.
        """
        self.want(name)
        where = self._where(name, reference)

        def attempt() -> bytes:
            response = self._manifest_request("GET", name, reference)
            self.wire.check(response, where, 200, missing="object_missing")
            return read_answer(response, MAX_MANIFEST_BYTES, where)

        return patiently(self._clock, attempt)

    def tagged(self, name: str, tag: str) -> Digest | None:
        """What a tag names now, by the registry's word; None if there is no such tag."""
        self.want(name)
        where = self._where(name, tag)

        def attempt() -> Digest | None:
            response = self._manifest_request("HEAD", name, tag)
            if response.status_code == 404:
                finish(response)
                return None
            self.wire.check(response, where, 200)
            finish(response)
            said = response.headers.get(_DIGEST_HEADER)
            return Digest(said) if said is not None and is_digest(said) else manifest_digest(self.manifest(name, tag))

        return patiently(self._clock, attempt)

    def put_manifest(self, name: str, reference: str, data: bytes) -> None:
        """Keep manifest bytes under a tag or their digest; what the tag named before stays, without it.

        Raises:
            StoreError: slug object_missing: a blob that it names is not there; digest_mismatch: the registry rewrote it.
        """
        self.want(name, push=True)
        where = self._where(name, reference)
        url = self.wire.container(name).manifest_url(reference)
        headers = {"Content-Type": MANIFEST_TYPE}

        def attempt() -> None:
            response = self._send_to(name, "PUT", url, where, headers=headers, data=data)
            try:
                self.wire.check(response, where, 201)
            except AnswerError as e:
                if _BLOB_LOST.intersection(e.codes):
                    raise refusal("object_missing", where, got=" ".join(e.codes)) from e
                raise
            finish(response)
            said = response.headers.get(_DIGEST_HEADER, manifest_digest(data))
            if said != manifest_digest(data):
                raise refusal("digest_mismatch", where, got=said[:80], expected=manifest_digest(data))

        patiently(self._clock, attempt)

    def tags(self, name: str) -> list[str]:
        """All tags of a repository; none if there is no such repository.

        Raises:
            StoreError: the list has no end, or is none.
        """
        self.want(name)
        where = self._where(name, "tags")
        url = self.wire.url(self.wire.container(name).tags_url())
        found: list[str] = []
        for _ in range(_MAX_PAGES):
            response, page = patiently(self._clock, partial(self._page, name, url, where))
            found += page
            following = response.links.get("next", {}).get("url")
            if not following:
                return found
            url = joined(url, following)
            if urlsplit(url).netloc != self.wire.hostname:
                raise refusal("credential_scope", where, got=following[:80], expected=self.wire.hostname)
        raise refusal("registry_unavailable", where, got=f"more than {_MAX_PAGES} pages of tags")

    def _page(self, name: str, url: str, where: str) -> tuple[requests.Response, list[str]]:
        response = self.wire.send("GET", url, where, [name])
        if response.status_code == 404:
            finish(response)
            return response, []
        self.wire.check(response, where, 200)
        data = read_answer(response, _MAX_TAGS_BYTES, where)
        try:
            document = parse_json(data, max_bytes=_MAX_TAGS_BYTES)
        except BadJson as e:
            raise refusal("registry_unavailable", where, got=str(e)[:80], expected="a list of tags") from e
        tags = document.get("tags") if isinstance(document, dict) else None
        return response, [tag for tag in tags or [] if isinstance(tag, str)]

    # deletion

    def delete(self, name: str, kind: str, digest: Digest) -> bool:
        """Remove a manifest with all its tags, or a blob from one repository; False: this registry never does that.

        Args:
            kind: "manifests" or "blobs".
        """
        self.wire.authority.need(name, PULL, PUSH, DELETE)
        where = self._where(name, digest)
        container = self.wire.container(name)
        url = container.manifest_url(digest) if kind == "manifests" else container.get_blob_url(digest)

        def attempt() -> bool:
            response = self._send_to(name, "DELETE", url, where)
            if response.status_code in (404, 405):
                finish(response)
                return response.status_code == 404
            self.wire.check(response, where, 202, 200, 204)
            finish(response)
            return True

        return patiently(self._clock, attempt)

    # the rest

    def _where(self, name: str, reference: str = "") -> str:
        separator = "" if not reference else "@" if is_digest(reference) else ":"
        return f"{self.wire.hostname}/{name}{separator}{reference}"

    def _send_to(
        self,
        name: str,
        method: str,
        rest: str,
        where: str,
        *,
        names: list[str] | None = None,
        headers: dict[str, str] | None = None,
        data: bytes | None = None,
    ) -> requests.Response:
        return self.wire.send(method, self.wire.url(rest), where, names or [name], headers=headers, data=data)

    def _manifest_request(self, method: str, name: str, reference: str) -> requests.Response:
        url = self.wire.container(name).manifest_url(reference)
        return self._send_to(name, method, url, self._where(name, reference), headers={"Accept": MANIFEST_TYPE})
