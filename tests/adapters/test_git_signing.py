"""SSH signatures of commits, against git's own making and checking of them."""

from __future__ import annotations

import base64
import datetime as dt
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from fedops.adapters.git_repo import GitRepository
from fedops.adapters.git_signing import public_key, signature_of, signer_among
from fedops.core.errors import ConfigError, GitError
from fedops.core.ids import CommitId, RepoPath
from tests.sshkeys import SshKey, make_key

AT = dt.datetime(2026, 3, 2, 9, 30, tzinfo=dt.UTC)
KINDS = ("ed25519", "rsa", "ecdsa")


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SshKey]:
    folder = tmp_path_factory.mktemp("keys")
    return {kind: make_key(folder, kind, kind) for kind in KINDS} | {"other": make_key(folder, "other")}


@pytest.fixture
def repo(tmp_path: Path) -> Iterator[GitRepository]:
    with GitRepository.init(tmp_path / "repo") as repository:
        yield repository


def raw(repo: GitRepository, commit: str) -> bytes:
    command = ["git", "-C", str(repo.path), "cat-file", "commit", commit]
    return subprocess.run(command, capture_output=True, check=True).stdout


def store(repo: GitRepository, data: bytes) -> CommitId:
    command = ["git", "-C", str(repo.path), "hash-object", "-t", "commit", "-w", "--stdin", "--literally"]
    return CommitId(subprocess.run(command, input=data, capture_output=True, check=True).stdout.decode().strip())


def git_says_good(repo: GitRepository, commit: str, key: SshKey, tmp_path: Path) -> bool:
    (tmp_path / "allowed").write_text(f"someone {key.public}\n")
    options = ("-c", f"gpg.ssh.allowedSignersFile={tmp_path / 'allowed'}")
    return (
        subprocess.run(["git", "-C", str(repo.path), *options, "verify-commit", commit], capture_output=True).returncode
        == 0
    )


def sign(payload: bytes, key: SshKey, namespace: str = "git") -> bytes:
    command = ["ssh-keygen", "-q", "-Y", "sign", "-n", namespace, "-f", str(key.private)]
    return subprocess.run(command, input=payload, capture_output=True, check=True).stdout


def with_signature(payload: bytes, armor: bytes, header: bytes = b"gpgsig") -> bytes:
    head, _, message = payload.partition(b"\n\n")
    return head + b"\n" + header + b" " + armor.strip().replace(b"\n", b"\n ") + b"\n\n" + message


@pytest.mark.parametrize("kind", KINDS)
def test_git_accepts_what_is_signed_here_and_the_key_is_found(
    repo: GitRepository, keys: Mapping[str, SshKey], kind: str, tmp_path: Path
) -> None:
    key = keys[kind]
    config = ["git", "-C", str(repo.path), "config", "gpg.ssh.program", "false"]
    subprocess.run(config, check=True)
    commit = repo.write_commit([], {RepoPath("a"): b"1"}, "submit", at=AT, key=key.private)
    subprocess.run([*config[:4], "--unset", config[4]], check=True)
    assert git_says_good(repo, commit, key, tmp_path)
    assert not git_says_good(repo, commit, keys["other"], tmp_path)
    assert repo.signer(commit, [keys["other"].public, key.public]) == key.public
    assert repo.signer(commit, [keys["other"].public]) is None


def test_what_git_signs_itself_is_recognised(repo: GitRepository, keys: Mapping[str, SshKey]) -> None:
    key = keys["ed25519"]
    options = ["-c", "gpg.format=ssh", "-c", f"user.signingkey={key.private}"]
    command = ["git", "-C", str(repo.path), *options, "commit", "-q", "-S", "--allow-empty", "-m", "by hand"]
    subprocess.run(command, check=True, capture_output=True)
    commit = repo.resolve("HEAD")
    assert commit is not None
    assert repo.signer(commit, [key.public]) == key.public


def test_a_signed_commit_that_was_tampered_with_has_no_signer(
    repo: GitRepository, keys: Mapping[str, SshKey], tmp_path: Path
) -> None:
    key = keys["ed25519"]
    commit = repo.write_commit([], {RepoPath("a"): b"1"}, "message", at=AT, key=key.private)
    data = raw(repo, commit)
    signature = signature_of(data)
    assert signature is not None
    other_tree = b"4b825dc642cb6eb9a060e54bf8d69288fbee4904"
    tampered = {
        "message": data.replace(b"\n\nmessage", b"\n\nMessage"),
        "message longer": data + b"\n",
        "tree": data.replace(data[5:45], other_tree),
        "parent added": data.replace(b"\nauthor", b"\nparent " + other_tree + b"\nauthor"),
        "author": data.replace(b"author Test", b"author Tess"),
        "date": data.replace(b"committer Test <test@example.invalid> 1", b"committer Test <test@example.invalid> 2"),
        "header added": data.replace(b"\ngpgsig", b"\nencoding x\ngpgsig"),
        "header hidden behind it": data.replace(b"\n\nmessage", b"\nmergetag x\n\nmessage"),
        "signature in two headers": data.replace(b"\n U1NI", b"\ngpgsig U1NI"),
        "second signature": with_signature(data, signature.armor),
        "sha256 signature added": with_signature(data, signature.armor, b"gpgsig-sha256"),
        "signature cut": data.replace(b"-----END SSH SIGNATURE-----", b"-----END SSH SIGNATURE----"),
        "signature followed by text": data.replace(
            b" -----END SSH SIGNATURE-----", b" -----END SSH SIGNATURE-----\n x"
        ),
        "signature changed": data.replace(signature.armor[200:204], b"AAAA"),
        "not base64": data.replace(b"\n U1NIU0lH", b"\n U1NIU0l"),
        "not a signature": with_signature(
            signature.payload, b"-----BEGIN SSH SIGNATURE-----\nAAAA\n-----END SSH SIGNATURE-----"
        ),
        "cut after the magic": with_signature(
            signature.payload,
            b"-----BEGIN SSH SIGNATURE-----\n"
            + base64.b64encode(b"SSHSIG\0\0\0\1\0\0")
            + b"\n-----END SSH SIGNATURE-----",
        ),
    }
    assert with_signature(signature.payload, signature.armor) == data
    assert repo.signer(commit, [key.public]) == key.public
    for what, forged in tampered.items():
        assert forged != data, what
        assert repo.signer(store(repo, forged), [key.public]) is None, what


def test_a_signature_for_another_purpose_or_of_another_kind_is_none(
    repo: GitRepository, keys: Mapping[str, SshKey]
) -> None:
    key = keys["ed25519"]
    payload = raw(repo, repo.write_commit([], {}, "m", at=AT))
    assert signer_among(with_signature(payload, sign(payload, key)), [key.public]) == key.public
    assert signer_among(with_signature(payload, sign(payload, key, "file")), [key.public]) is None
    pgp = b"-----BEGIN PGP SIGNATURE-----\n\niQEzBAABCAAdFiEE\n-----END PGP SIGNATURE-----"
    assert signer_among(with_signature(payload, pgp), [key.public]) is None
    assert signer_among(payload + sign(payload, key), [key.public]) is None


def test_a_signature_that_only_names_a_roster_key_is_none(repo: GitRepository, keys: Mapping[str, SshKey]) -> None:
    payload = raw(repo, repo.write_commit([], {}, "m", at=AT))
    theirs, mine = keys["ed25519"], keys["other"]
    blob = base64.b64decode(b"".join(sign(payload, mine).splitlines()[1:-1]))
    wire = [public_key(k.public) for k in (mine, theirs)]
    assert wire[0] is not None
    assert wire[1] is not None
    forged = base64.b64encode(blob.replace(wire[0][1], wire[1][1]))
    armor = b"-----BEGIN SSH SIGNATURE-----\n" + forged + b"\n-----END SSH SIGNATURE-----"
    assert signer_among(with_signature(payload, armor), [theirs.public, mine.public]) is None


def test_a_public_key_is_read_exactly(keys: Mapping[str, SshKey]) -> None:
    for kind, name in {"ed25519": "ssh-ed25519", "rsa": "ssh-rsa", "ecdsa": "ecdsa-sha2-nistp256"}.items():
        line = keys[kind].public
        read = public_key(line + "\n")
        assert read is not None
        assert read == (name, base64.b64decode(line.split()[1]))
        assert public_key(line.split()[0] + " " + keys["other"].public.split()[1]) is None or kind == "ed25519"
    encoded = keys["ed25519"].public.split()[1]
    for bad in (
        f"ssh-dss {encoded}",
        f"ssh-ed25519 {encoded}=",
        "ssh-ed25519 A",
        "ssh-ed25519 AAAA",
        "ssh-ed25519 ////",
    ):
        assert public_key(bad) is None


def test_a_signature_is_checked_once(
    repo: GitRepository, keys: Mapping[str, SshKey], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = keys["ed25519"]
    commit = repo.write_commit([], {}, "m", at=AT, key=key.private)
    assert repo.signer(commit, [key.public]) == key.public
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    assert repo.signer(commit, [key.public]) == key.public
    with pytest.raises(ConfigError):
        repo.signer(commit, [key.public, ""])


def test_without_ssh_keygen_the_error_says_what_to_install(
    repo: GitRepository, keys: Mapping[str, SshKey], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    key = keys["ed25519"]
    commit = repo.write_commit([], {}, "m", at=AT, key=key.private)
    unsigned = repo.write_commit([], {}, "m", at=AT)
    (tmp_path / "bin").mkdir()
    git = shutil.which("git")
    assert git is not None
    (tmp_path / "bin/git").symlink_to(git)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    asks: list[Callable[[], object]] = [
        lambda: repo.signer(commit, [key.public]),
        lambda: repo.write_commit([], {}, "n", at=AT, key=key.private),
    ]
    for ask in asks:
        with pytest.raises(ConfigError) as caught:
            ask()
        assert "openssh-client" in caught.value.hint
    assert repo.signer(unsigned, [key.public]) is None
    assert repo.signer(commit, [keys["other"].public]) is None


def test_a_file_that_is_no_key_is_an_error_that_says_so(repo: GitRepository, tmp_path: Path) -> None:
    (tmp_path / "key").write_text("not a key")
    (tmp_path / "key").chmod(0o600)
    with pytest.raises(GitError, match="commit-tree"):
        repo.write_commit([], {}, "m", at=AT, key=tmp_path / "key")
