"""Level 2 on the loopback GitHub: main takes merges of what was approved and accepted, and pushes of a deploy key, by ssh.

And `GET /meta`, which tells the host keys. The ssh server is asyncssh's, the client is the real one of OpenSSH.
"""

from __future__ import annotations

import asyncio
import functools
import json
import os
import queue
import re
import shlex
import shutil
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import asyncssh

from tests.github_face.hub import Hub
from tests.github_face.openapi import Description, Exchange
from tests.github_face.rest import Refused
from tests.github_face.server import API, Handler, Server
from tests.github_face.settings import main_ruleset
from tests.github_face.trim_meta import META

OK, CHUNK = 200, 65_536
# GitHub's words for a push that a ruleset forbids. REMOTE_USER is there where the push came by HTTP.
_HOOK = """#!/bin/sh
if [ "$1" = refs/heads/main ] && [ "$FACE_PUSHER" != deploy-key ]; then
  echo "error: GH013: Repository rule violations found for $1." >&2
  exit 1
fi
"""


APPROVALS, VERDICT = 1, "fedops/verdict"
RULES: tuple[dict[str, Any], ...] = (
    {
        "type": "pull_request",
        "parameters": {
            "allowed_merge_methods": ["merge", "squash", "rebase"],
            "dismiss_stale_reviews_on_push": True,
            "require_code_owner_review": False,
            "require_last_push_approval": True,
            "required_approving_review_count": APPROVALS,
            "required_review_thread_resolution": False,
        },
    },
    {
        "type": "required_status_checks",
        "parameters": {
            "strict_required_status_checks_policy": False,
            "required_status_checks": [{"context": VERDICT}],
        },
    },
)


@dataclass
class Level2:
    """What of the service is different.

    Args:
        host_keys: that `GET /meta` tells; None: no such field, as on an Enterprise Server.
        status: of that answer.
        asked: Authorization of each such request.
    """

    server: Server
    host_keys: Sequence[str] | None
    status: int = OK
    asked: list[str] = field(default_factory=list)

    @property
    def required(self) -> bool:
        """Main has the rules of level 2."""
        rulesets = self.server.hub.settings.rulesets
        return any(rule["type"] == "pull_request" for ruleset in rulesets for rule in ruleset.rules)

    def require_pull_request(self) -> None:
        """Set the ruleset on main, with the bypass for deploy keys, and keep to it from now on."""
        hub = self.server.hub
        hub.settings.rulesets.append(main_ruleset(*RULES, bypass=[("DeployKey", "always")]))
        hook = hub.upstream.path / "hooks" / "update"  # runs for pushes, not for the server's own merges
        hook.parent.mkdir(exist_ok=True)
        hook.write_text(_HOOK)
        hook.chmod(0o755)


def level_2(server: Server, host_keys: Sequence[str] | None) -> Level2:
    """Let a running server do what level 2 needs of it."""
    made = Level2(server, host_keys)

    class Changed(Handler):
        def answer_rest(self) -> None:
            if (self.command, self.path) != ("GET", f"{API}/meta"):
                super().answer_rest()
                return
            made.asked.append(self.headers.get("Authorization", ""))
            self.send(made.status, {"Content-Type": "application/json"}, json.dumps(_meta(made)).encode())

        def routed(self, path: str, body: Any) -> tuple[int, Any]:
            merge = re.fullmatch(r"/repos/[^/]+/[^/]+/pulls/(\d+)/merge", path)
            if merge is not None and made.required:
                _demand(self.server.hub, int(merge[1]))
            return super().routed(path, body)

    server.RequestHandlerClass = Changed
    return made


def _meta(face: Level2) -> dict[str, Any]:
    """Held to GitHub's description."""
    if face.status != OK:
        return {"message": "refused"}
    answer: dict[str, Any] = {"verifiable_password_authentication": False}
    if face.host_keys is not None:
        answer["ssh_keys"] = list(face.host_keys)
    faults = _described().faults(Exchange("GET", "/meta", None, OK, answer))
    assert not faults, faults
    return answer


def _demand(hub: Hub, number: int) -> None:
    """Refuse a merge that the rules do not allow, in GitHub's words."""
    pull = hub.pull(number)
    assert pull is not None
    latest = {r.author.id: r for r in hub.reviews if r.number == number}.values()
    approvals = [r for r in latest if r.state == "APPROVED" and r.commit == pull.head]
    if len([r for r in approvals if r.author.login in hub.upstream.writers]) < APPROVALS:
        raise Refused(405, f"At least {APPROVALS} approving review is required by reviewers with write access.")
    said = [s.state for s in hub.statuses if (s.sha, s.context) == (pull.head, VERDICT)]
    if said[-1:] != ["success"]:
        raise Refused(405, f'Required status check "{VERDICT}" is expected.')


@functools.cache
def _described() -> Description:
    return Description(json.loads(META.read_bytes()))


# ---------------------------------------------------------------- ssh


@dataclass
class SshServer:
    """A running server.

    Attributes:
        host_key: its public key, "ssh-ed25519 AAAA…".
        commands: that were asked for, in order.
    """

    port: int
    host_key: str
    commands: list[str]

    def client(self, folder: Path) -> str:
        """A PATH whose `ssh` is the machine's own, on this server's port."""
        real = shutil.which("ssh")
        assert real is not None, "apt-get install openssh-client"
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / "ssh"
        program.write_text(f'#!/bin/sh\nexec {shlex.quote(real)} -p {self.port} "$@"\n')
        program.chmod(0o755)
        return f"{folder}{os.pathsep}{os.environ['PATH']}"


@contextmanager
def ssh_server(hub: Hub, authorized: str) -> Iterator[SshServer]:
    """Serve the hub's repositories for pushes with one key, as a deploy key with write access.

    Args:
        authorized: its public key line.
    """
    host_key = asyncssh.generate_private_key("ssh-ed25519")
    commands: list[str] = []
    ports: queue.Queue[int] = queue.Queue()
    loop, over = asyncio.new_event_loop(), asyncio.Event()

    async def serve() -> None:
        listening = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_host_keys=[host_key],
            authorized_client_keys=asyncssh.import_authorized_keys(authorized),
            process_factory=functools.partial(_receive, hub, commands),
            encoding=None,
        )
        async with listening:
            ports.put(listening.get_port())
            await over.wait()

    def run() -> None:
        with asyncio.Runner(loop_factory=lambda: loop) as runner:  # what is left of connections is cancelled at the end
            runner.run(serve())

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        line = host_key.export_public_key().decode().strip()
        yield SshServer(ports.get(timeout=10), line, commands)
    finally:
        loop.call_soon_threadsafe(over.set)
        thread.join(10)


async def _receive(hub: Hub, commands: list[str], process: asyncssh.SSHServerProcess[bytes]) -> None:
    """`git-receive-pack '/owner/name.git'`, and nothing else."""
    commands.append(process.command or "")
    words = shlex.split(process.command or "")
    repo = hub.repos.get(words[-1].strip("/").removesuffix(".git").lower()) if len(words) == 2 else None
    if repo is None or words[0] != "git-receive-pack":
        process.stderr.write(b"ERROR: Repository not found.\n")
        process.exit(1)
        return
    git = await asyncio.create_subprocess_exec(
        "git",
        "receive-pack",
        str(repo.path),
        env={**os.environ, "FACE_PUSHER": "deploy-key"},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
    )
    assert git.stdin is not None
    assert git.stdout is not None
    sending = asyncio.create_task(_pump(process.stdin, git.stdin))
    try:
        while data := await git.stdout.read(CHUNK):
            process.stdout.write(data)
        code = await git.wait()
    finally:
        sending.cancel()
        if git.returncode is None:
            git.kill()
    with hub.lock:
        hub.notice()
    process.exit(code)


async def _pump(source: asyncssh.SSHReader[bytes], sink: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await source.read(CHUNK):
            sink.write(data)
            await sink.drain()
        sink.close()
