"""Passwords and tokens: who is shown them, how often they are asked for, and what is said when they are not enough."""

from __future__ import annotations

import base64
import datetime as dt
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from fedops.adapters.registry_auth import challenges, host_of
from fedops.adapters.registry_credentials import Credentials, Lookup
from fedops.core.errors import StoreError
from tests.registry.proxy import Answer, FaultProxy, fault_proxy
from tests.registry.server import registry_server
from tests.registry.tokens import TokenService, htpasswd
from tests.registry.worlds import StillClock, registry_store

A, B, ARCHIVE = "sites/hospital-a", "sites/hospital-b", "archive"
SECRET = "correct horse battery"
ALICE = Credentials("alice-a", SECRET)
BASIC = "Basic " + base64.b64encode(f"alice-a:{SECRET}".encode()).decode()


def only(host: str, credentials: Credentials = ALICE) -> Lookup:
    return lambda asked: credentials if asked == host else None


def refused(call: Callable[[], object]) -> StoreError:
    with pytest.raises(StoreError) as caught:
        call()
    assert SECRET not in caught.value.message + caught.value.hint
    assert BASIC.removeprefix("Basic ") not in caught.value.message + caught.value.hint
    return caught.value


# a user and a password


@pytest.fixture
def locked(tmp_path: Path) -> Iterator[FaultProxy]:
    """A registry that asks for a password."""
    folder = tmp_path / "locked"
    auth = htpasswd(folder, {"alice-a": SECRET})
    with registry_server(folder, auth=auth) as server, fault_proxy(server.host) as proxy:
        yield proxy


def test_password_is_asked_for_once_and_sent_at_once_from_then_on(locked: FaultProxy, update: Path, out: Path) -> None:
    store = registry_store(locked.host, only(locked.host))
    put = store.put(A, update, {})
    store.get(A, put.layer, out / "x")
    store.copy(store, A, put.manifest, ARCHIVE)
    assert store.drop(A, put.manifest)
    store.close()
    sent = [seen.headers.get("authorization") for seen in locked.seen]
    assert sent[0] is None
    assert set(sent[1:]) == {BASIC}


@pytest.mark.parametrize("credentials", [None, Credentials("alice-a", "guessed wrongly")])
def test_wrong_or_no_password_is_an_error_of_authentication(
    locked: FaultProxy, clock: StillClock, update: Path, credentials: Credentials | None
) -> None:
    store = registry_store(locked.host, lambda host: credentials, clock=clock)
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, error.cause, clock.slept) == ("auth_failed", "auth", [])
    assert "guessed" not in error.message + error.hint
    assert f"docker login {locked.host}" in error.hint
    assert len(locked.seen) == (1 if credentials is None else 2)
    assert store.write_fault(A) is not None
    store.close()


def test_password_is_looked_up_for_the_registrys_own_host_alone(locked: FaultProxy, update: Path) -> None:
    asked: list[str] = []

    def lookup(host: str) -> Credentials:
        asked.append(host)
        return ALICE

    store = registry_store(locked.host, lookup)
    store.put(A, update, {})
    store.close()
    assert asked == [locked.host]


@pytest.mark.parametrize("kind", ["basic", "token"])
def test_password_that_ended_is_looked_up_once_more(
    locked: FaultProxy, scoped: FaultProxy, service: TokenService, update: Path, kind: str
) -> None:
    """A helper of a cloud gives passwords for some hours, and a site's service runs for weeks."""
    proxy, given = {"basic": locked, "token": scoped}[kind], list[str]()
    old = Credentials("alice-a", "yesterday's")

    def lookup(host: str) -> Credentials:
        given.append(host)
        return old if len(given) == 1 else ALICE

    store = registry_store(proxy.host, lookup, token_hosts=frozenset({service.host}))
    store.put(A, update, {})
    store.close()
    assert len(given) == 2


def test_helper_with_a_new_wrong_password_each_time_is_given_up(locked: FaultProxy, update: Path) -> None:
    given: list[str] = []

    def lookup(host: str) -> Credentials:
        given.append(host)
        return Credentials("alice-a", f"wrong {len(given)}")

    store = registry_store(locked.host, lookup)
    assert refused(lambda: store.put(A, update, {})).cause == "auth"
    store.close()
    assert len(locked.seen) == 3


def test_password_stays_at_home_when_a_download_is_redirected(locked: FaultProxy, update: Path, out: Path) -> None:
    store = registry_store(locked.host, only(locked.host))
    put = store.put(A, update, {})
    with fault_proxy(locked.upstream) as storage:
        storage.plan("GET", "signed", Answer(200, {}, update.read_bytes()))
        locked.plan("GET", "blobs", Answer(307, {"Location": f"http://{storage.host}/signed?x=1"}))
        store.get(A, put.layer, out / "x")
        assert [seen.headers.get("authorization") for seen in storage.seen] == [None]
    store.close()
    assert (out / "x").read_bytes() == update.read_bytes()


def test_host_that_is_redirected_to_gets_no_password_when_it_asks(locked: FaultProxy, update: Path, out: Path) -> None:
    store = registry_store(locked.host, only(locked.host))
    put = store.put(A, update, {})
    with fault_proxy(locked.upstream) as thief:
        thief.plan("GET", "", Answer(401, {"WWW-Authenticate": 'Basic realm="yours"'}), times=9)
        locked.plan("GET", "blobs", Answer(307, {"Location": f"http://{thief.host}/x"}))
        error = refused(lambda: store.get(A, put.layer, out / "x"))
        assert (error.slug, error.cause) == ("credential_scope", "permanent")
        assert [seen.headers.get("authorization") for seen in thief.seen] == [None]
    store.close()


def test_upload_that_goes_on_elsewhere_takes_no_password_along(locked: FaultProxy, update: Path) -> None:
    store = registry_store(locked.host, only(locked.host))
    store.write_fault(A)
    with fault_proxy(locked.upstream) as elsewhere:
        elsewhere.plan("PUT", "session", Answer(201))
        locked.plan("POST", "uploads", Answer(202, {"Location": f"http://{elsewhere.host}/session?a=b"}))
        store.put(A, update, {})  # the registry does not have it then, says so, and gets it itself
        [seen] = elsewhere.seen
        assert (seen.headers.get("authorization"), seen.headers["content-length"]) == (None, "26")
        assert seen.path.startswith("/session?a=b&digest=sha256%3A")
    store.close()


def test_password_in_netrc_is_not_sent(
    locked: FaultProxy, update: Path, isolated_environment: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    netrc = isolated_environment / ".netrc"
    netrc.write_text(f"machine 127.0.0.1 login alice-a password {SECRET.replace(' ', '')}\n")
    netrc.chmod(0o600)
    store = registry_store(locked.host)
    store._client.wire.session.trust_env = True  # as for a registry that is not this machine
    refused(lambda: store.put(A, update, {}))
    store.close()
    assert {seen.headers.get("authorization") for seen in locked.seen} == {None}


def test_other_ways_to_sign_in_are_told_by_their_name(proxy: FaultProxy, update: Path) -> None:
    store = registry_store(proxy.host, only(proxy.host))
    for header, said in (("Negotiate", "Negotiate"), ("", "nothing")):
        proxy.plan("HEAD", "blobs", Answer(401, {"WWW-Authenticate": header}))
        error = refused(lambda: store.put(A, update, {}))
        assert (error.slug, error.cause) == ("auth_failed", "auth")
        assert said in error.message
    store.close()


# tokens


@pytest.fixture
def service() -> Iterator[TokenService]:
    rights = {
        ("alice-a", f"acme/fed/{A}"): "pull,push,delete",
        ("alice-a", f"acme/fed/{B}"): "pull",
        ("lead", f"acme/fed/{A}"): "pull",
        ("lead", f"acme/fed/{ARCHIVE}"): "pull,push",
        ("", f"acme/fed/{A}"): "pull",
    }
    users = {"alice-a": SECRET, "lead": "lead's own"}
    with TokenService(users, rights, {"an identity token": "alice-a"}).running() as running:
        yield running


@pytest.fixture
def scoped(tmp_path: Path, service: TokenService) -> Iterator[FaultProxy]:
    """A registry that takes tokens of a service on another host."""
    folder = tmp_path / "scoped"
    with registry_server(folder, auth=service.auth(folder)) as server, fault_proxy(server.host) as proxy:
        yield proxy


def test_one_token_serves_for_all_of_an_upload(scoped: FaultProxy, service: TokenService, update: Path) -> None:
    store = registry_store(scoped.host, only(scoped.host), token_hosts=frozenset({service.host}))
    put = store.put(A, update, {})
    assert service.asked == [[f"repository:acme/fed/{A}:pull,push"]]
    assert [seen.method for seen in scoped.seen if "authorization" not in seen.headers] == ["HEAD"]
    assert all(seen.headers["authorization"].startswith("Bearer ") for seen in scoped.seen[1:])
    assert store.manifest(A, put.manifest) == put
    assert len(service.asked) == 1
    store.close()


def test_reading_asks_for_no_more_than_reading(
    scoped: FaultProxy, service: TokenService, update: Path, out: Path
) -> None:
    hosts = frozenset({service.host})
    writer = registry_store(scoped.host, only(scoped.host), token_hosts=hosts)
    put = writer.put(A, update, {})
    writer.close()
    service.asked.clear()
    reader = registry_store(scoped.host, token_hosts=hosts)  # without a name: the service lets anybody read
    reader.get(A, reader.manifest(A, put.manifest).layer, out / "x")
    reader.close()
    assert service.asked == [[f"repository:acme/fed/{A}:pull"]]
    assert (out / "x").read_bytes() == update.read_bytes()


def test_lending_and_deleting_need_tokens_of_their_own(scoped: FaultProxy, service: TokenService, update: Path) -> None:
    hosts = frozenset({service.host})
    site = registry_store(scoped.host, only(scoped.host), token_hosts=hosts)
    lead = registry_store(scoped.host, only(scoped.host, Credentials("lead", "lead's own")), token_hosts=hosts)
    put = site.put(A, update, {})
    scoped.seen.clear()
    lead.copy(lead, A, put.manifest, ARCHIVE)
    assert len([s for s in scoped.seen if s.method == "PUT"]) == 1, "lent"
    assert [f"repository:acme/fed/{ARCHIVE}:pull,push", f"repository:acme/fed/{A}:pull"] in service.asked
    assert site.drop(A, put.manifest)
    assert service.asked[-1] == [f"repository:acme/fed/{A}:pull,push,delete"]
    assert lead.drop(ARCHIVE, put.manifest) is False, "the service gives the lead no right to delete"
    site.close()
    lead.close()


def test_site_cannot_write_where_another_does(scoped: FaultProxy, service: TokenService, update: Path) -> None:
    store = registry_store(scoped.host, only(scoped.host), token_hosts=frozenset({service.host}))
    error = refused(lambda: store.put(B, update, {}))
    assert (error.slug, error.cause) == ("auth_failed", "auth")
    assert B in error.message
    posts = [line for line in scoped.lines() if line.startswith("POST")]
    assert len(posts) == 2, "once with the token at hand, once with a new one"
    assert store.write_fault(B) is not None
    store.close()


def test_token_that_ends_in_mid_push_is_renewed_and_the_bytes_are_sent_again(
    scoped: FaultProxy, service: TokenService, update: Path, out: Path
) -> None:
    store = registry_store(scoped.host, only(scoped.host), token_hosts=frozenset({service.host}))
    challenge = f'Bearer realm="{service.realm}",service="registry.test",scope="repository:acme/fed/{A}:pull,push"'
    scoped.plan("PUT", "uploads", Answer(401, {"WWW-Authenticate": challenge}))
    put = store.put(A, update, {})
    store.get(A, put.layer, out / "x")
    store.close()
    assert (out / "x").read_bytes() == update.read_bytes()
    assert len(service.asked) == 2
    first, second = [s.headers["authorization"] for s in scoped.seen if s.method == "PUT"][:2]
    assert first != second


def test_old_token_is_renewed_before_it_is_refused(
    scoped: FaultProxy, service: TokenService, clock: StillClock, update: Path
) -> None:
    store = registry_store(scoped.host, only(scoped.host), token_hosts=frozenset({service.host}), clock=clock)
    put = store.put(A, update, {})
    clock.time += dt.timedelta(seconds=service.seconds - 11)
    store.manifest(A, put.manifest)
    assert len(service.asked) == 1
    clock.time += dt.timedelta(seconds=2)
    store.manifest(A, put.manifest)
    store.close()
    assert len(service.asked) == 2
    assert len([s for s in scoped.seen if "authorization" not in s.headers]) == 1


def test_identity_token_is_exchanged_for_access(scoped: FaultProxy, service: TokenService, update: Path) -> None:
    hosts = frozenset({service.host})
    store = registry_store(scoped.host, only(scoped.host, Credentials("", "", "an identity token")), token_hosts=hosts)
    store.put(A, update, {})
    store.close()
    bad = registry_store(scoped.host, only(scoped.host, Credentials("", "", "another")), token_hosts=hosts)
    assert refused(lambda: bad.put(A, update, {})).cause == "auth"
    bad.close()


def test_password_is_not_shown_to_a_token_service_on_another_host(
    scoped: FaultProxy, service: TokenService, update: Path
) -> None:
    store = registry_store(scoped.host, only(scoped.host))
    error = refused(lambda: store.put(A, update, {}))
    assert (error.slug, error.cause) == ("credential_scope", "permanent")
    assert service.host in error.message
    assert service.host in error.hint
    assert service.asked == []
    store.close()


@pytest.mark.parametrize(
    "realm",
    ["http://tokens.example/token", "https://u:p@127.0.0.1/token", "/token", "", "ftp://127.0.0.1/", "https://[::1/x"],
)
def test_token_service_that_is_no_address_over_tls_is_not_asked(proxy: FaultProxy, update: Path, realm: str) -> None:
    store = registry_store(proxy.host)
    proxy.plan("HEAD", "blobs", Answer(401, {"WWW-Authenticate": f'Bearer realm="{realm}"'}))
    assert refused(lambda: store.put(A, update, {})).slug == "credential_scope"
    store.close()


@pytest.mark.parametrize(
    ("answer", "cause"),
    [(Answer(401), "auth"), (Answer(403), "auth"), (Answer(404), "permanent"), (Answer(200, {}, b"<html>"), "auth"),
     (Answer(200, {}, b"[]"), "auth"), (Answer(200, {}, b'{"token": "a\\nb"}'), "auth"), (Answer(302), "permanent"),
     (Answer(200, {}, b'{"token": 5}'), "auth")],
)  # fmt: skip
def test_token_service_that_gives_none_ends_it(
    proxy: FaultProxy, clock: StillClock, update: Path, answer: Answer, cause: str
) -> None:
    store = registry_store(proxy.host, only(proxy.host), clock=clock)
    proxy.plan("HEAD", "blobs", Answer(401, {"WWW-Authenticate": f'Bearer realm="http://{proxy.host}/token?a=b"'}))
    proxy.plan("GET", "token", answer)
    error = refused(lambda: store.put(A, update, {}))
    assert (error.cause, clock.slept) == (cause, [])
    assert [seen.path for seen in proxy.seen][1].startswith("/token?a=b&scope=")
    store.close()


def test_token_service_that_is_down_for_a_moment_is_asked_again(
    scoped: FaultProxy, service: TokenService, clock: StillClock, update: Path
) -> None:
    store = registry_store(scoped.host, only(scoped.host), clock=clock, token_hosts=frozenset({service.host}))
    service.fails = [503, 429]
    store.put(A, update, {})
    assert clock.slept == [1.0, 1.5]
    store.close()


@pytest.mark.parametrize(("body", "seconds"), [(b'{"access_token": "t", "expires_in": 20}', 10), (b'{"token": "t"}', 50),
                                               (b'{"token": "t", "expires_in": "x"}', 50)])  # fmt: skip
def test_life_of_a_token_is_a_minute_unless_it_is_said(
    proxy: FaultProxy, clock: StillClock, body: bytes, seconds: int
) -> None:
    store = registry_store(proxy.host, clock=clock)
    proxy.plan("HEAD", "manifests", Answer(401, {"WWW-Authenticate": f'Bearer realm="http://{proxy.host}/token"'}))
    proxy.plan("GET", "token", Answer(200, {}, body), times=9)
    store.resolve(f"{A}:v1")
    clock.time += dt.timedelta(seconds=seconds - 1)
    store.resolve(f"{A}:v1")
    assert len([s for s in proxy.seen if s.path.startswith("/token")]) == 1
    clock.time += dt.timedelta(seconds=1)
    store.resolve(f"{A}:v1")
    assert len([s for s in proxy.seen if s.path.startswith("/token")]) == 2
    store.close()


def test_rights_over_other_things_are_not_asked_for(proxy: FaultProxy) -> None:
    """Attack: a registry that lets us fetch a token for more than the request is about."""
    store = registry_store(proxy.host, only(proxy.host))
    scope = f"repository:acme/fed/{A}:pull,write repository:other/fed:push registry:catalog:*"
    challenge = f'Bearer realm="http://{proxy.host}/token",scope="{scope}"'
    proxy.plan("HEAD", "manifests", Answer(401, {"WWW-Authenticate": challenge}))
    proxy.plan("GET", "token", Answer(200, {}, b'{"token": "t"}'))
    store.resolve(f"{A}:v1")
    store.close()
    assert proxy.seen[1].path == "/token?" + urlencode({"scope": f"repository:acme/fed/{A}:pull,write"})


# what registries say


@pytest.mark.parametrize(
    ("header", "expected"),
    [
        ('Basic realm="Basic realm, with a comma"', {"basic": {"realm": "Basic realm, with a comma"}}),
        ('Bearer realm="https://a/t",service="s",scope="repository:x:pull,push"',
         {"bearer": {"realm": "https://a/t", "service": "s", "scope": "repository:x:pull,push"}}),
        ('BASIC realm=x, Bearer realm = "y\\"z"', {"basic": {"realm": "x"}, "bearer": {"realm": 'y"z'}}),
        ("Negotiate", {"negotiate": {}}),
        ("", {}),
    ],
)  # fmt: skip
def test_challenges_are_read_apart(header: str, expected: dict[str, dict[str, str]]) -> None:
    assert challenges(header) == expected


@pytest.mark.parametrize(
    ("url", "host"),
    [("https://GHCR.io/token", "ghcr.io"), ("https://a:443/", "a"), ("https://a:5000", "a:5000"), ("http://a:80/x", "a"),
     ("https://u:p@a/x", "a"), ("http://[::1]:5000/x", "[::1]:5000"), ("/x", ""), ("https://a:b/", "")],
)  # fmt: skip
def test_host_of_a_url_is_what_credentials_are_bound_to(url: str, host: str) -> None:
    assert host_of(url) == host
