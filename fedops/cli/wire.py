"""The one place that builds adapters and hands them to use cases."""

from __future__ import annotations

import dataclasses
import datetime as dt
import os
import platform
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fedops import __version__
from fedops.core.errors import ConfigError, MainFileError
from fedops.core.ids import FEDERATION_PATH

if TYPE_CHECKING:
    from fedops.adapters.dvc_remote import Stores
    from fedops.adapters.git_repo import GitRepository
    from fedops.app.context import Context
    from fedops.cli.stores import Registries
    from fedops.core.settings import Federation
    from fedops.ports import Forge, Models, Progress, Repository, Store


class SystemClock:
    """The clock of this machine."""

    def now(self) -> dt.datetime:
        return dt.datetime.now(dt.UTC)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


def models() -> Models:
    """The reader of model files."""
    from fedops.adapters.model_files import ModelFiles

    return ModelFiles()


def store(
    url: str,
    *,
    relative_to: Path,
    registries: Registries | None = None,
    progress: Progress | None = None,
    main: Repository | None = None,
) -> Store:
    """Open a store by its URL.

    Args:
        registries: opens those in registries; None: one for this use, which knows of no federation.
        progress: told of the bytes that a folder takes or gives; registries know whom they tell.
        main: a clone, whose main says whether a folder must have models; None: nobody does.

    Raises:
        ConfigError: not the URL of a store.
    """
    if url.startswith("ocidir:"):
        from fedops.adapters.store_layout import LayoutStore
        from fedops.app.founded import has_models

        filled = partial(has_models, main, url) if main is not None else None
        return LayoutStore(relative_to / url.removeprefix("ocidir:"), progress=progress, has_models=filled)
    return (registries or registries_of(None)).open(url)


def registries_of(home: str | None, progress: Progress | None = None) -> Registries:
    """Registries, for a federation whose own store is at the URL `home`."""
    from fedops.cli.stores import Registries

    return Registries(os.environ, home=home, clock=SystemClock(), progress=progress)


def repository(path: Path, main: str = "main", env: Mapping[str, str] | None = None) -> GitRepository:
    """Open the clone that `path` lies in.

    Args:
        env: added to git's environment.
    """
    from fedops.adapters.git_repo import GitRepository

    if os.environ.get("GITHUB_ACTIONS") != "true":
        return GitRepository(path, main=main, env=env)
    from fedops.core.workflows import JOB_AUTHOR

    # NOTE: on GitHub's runners git knows no user, and would refuse to write a commit.
    return GitRepository(path, main=main, author=JOB_AUTHOR, env=env)


def clone_of(root: Path, federation: Federation) -> GitRepository:
    """Open a federation's clone; git logs in on the forge as the REST API does."""
    from fedops.cli.tokens import git_environment

    return repository(root, federation.branch, git_environment(federation.forge, os.environ))


def federation_root(start: Path) -> Path:
    """The nearest folder at or above `start` that has a federation.yaml.

    Raises:
        ConfigError: there is none.
    """
    for folder in (start.resolve(), *start.resolve().parents):
        if (folder / FEDERATION_PATH).is_file():
            return folder
    raise ConfigError(
        f"{start}: no federation.yaml here or above", hint="change into a federation's clone, or run `fedops init`"
    )


def read_federation(root: Path) -> Federation:
    """federation.yaml of a work tree: says which forge and store to talk to.

    Raises:
        MainFileError: it cannot be used.
    """
    from fedops.core.documents import load_document
    from fedops.core.settings import Federation

    try:
        return load_document((root / FEDERATION_PATH).read_bytes(), Federation, str(FEDERATION_PATH))
    except ConfigError as e:
        hint = "if main has it so, a lead corrects it there and `git pull` brings it; nothing of yours is lost"
        raise MainFileError(e.message, hint=hint) from e


def origin_folder(repo: GitRepository, root: Path) -> Path:
    """The folder that relative store paths start from: a folder origin, else the clone itself."""
    url = repo.remote_url()
    if url is not None:
        path = Path(url.removeprefix("file://"))
        path = path if path.is_absolute() else root / path
        if path.is_dir():
            return path.resolve()
    return root


def dvc_stores() -> Stores:
    """Stores as DVC's remotes are given them."""
    from fedops.adapters.dvc_remote import Stores
    from fedops.core.errors import GitError

    def base(folder: Path) -> Path:
        try:
            with repository(folder) as repo:
                return origin_folder(repo, folder)
        except GitError:  # no git, or none of its own: then there is no origin
            return folder

    def opened(url: str, progress: Progress) -> Store:
        try:
            home = read_federation(federation_root(Path.cwd())).store.url
        except ConfigError:  # `dvc get URL` is for everybody
            home = None
        return store(url, relative_to=Path.cwd(), registries=registries_of(home, progress), progress=progress)

    return Stores(open=opened, base=base)


def signing_key(root: Path) -> Path | None:
    """The private key that signs here: FEDOPS_KEY, or the one `fedops join` noted in .fedops/site.yaml."""
    from fedops.app.site_state import read_site_state

    if named := os.environ.get("FEDOPS_KEY"):
        return Path(named)
    state = read_site_state(root)
    return Path(state.key) if state is not None and state.key else None


def forge(federation: Federation, repo: GitRepository, key: Path | None) -> Forge:
    """The forge that federation.yaml names."""
    if federation.forge.kind == "git":
        from fedops.adapters.forge_git import GitForge

        return GitForge(repo, clock=SystemClock(), key=key, main=federation.branch)
    from fedops.adapters.forge_github import GitHubForge
    from fedops.adapters.github_people import JOB_TOKEN
    from fedops.cli.tokens import forge_token
    from fedops.core.github_hosts import host_of

    host = host_of(federation.forge.api_url)
    return GitHubForge(
        repo,
        host=host,
        name=str(federation.forge.repository),
        token=forge_token(host, os.environ),
        clock=SystemClock(),
        main=federation.branch,
        bot=os.environ.get("FEDOPS_BOT") or JOB_TOKEN,
    )


def software() -> dict[str, str]:
    """Versions that records carry as witness."""
    import numpy as np

    return {"fedops": __version__, "numpy": np.__version__, "python": platform.python_version()}


@contextmanager
def open_context(start: Path | None = None, *, key: Path | None = None) -> Iterator[tuple[Path, Context]]:
    """Open everything that a command needs in the federation around `start` (default: the current folder).

    Yields:
        The federation root and the context; temporary files are gone afterwards, and so are those of killed commands.
    """
    from fedops.app.context import Context
    from fedops.cli.console import TerminalProgress
    from fedops.cli.scratch import command_folder

    root = federation_root(start or Path.cwd())
    federation = read_federation(root)
    progress = TerminalProgress()
    with (
        clone_of(root, federation) as repo,
        command_folder() as scratch,
        closing(registries_of(federation.store.url, progress)) as registries,
    ):
        base = origin_folder(repo, root)
        yield (
            root,
            Context(
                repository=repo,
                forge=forge(federation, repo, key or signing_key(root)),
                stores=lambda url: store(url, relative_to=base, registries=registries, progress=progress, main=repo),
                models=models(),
                clock=SystemClock(),
                progress=progress,
                scratch=scratch,
                software=software(),
                run_url=os.environ.get("FEDOPS_RUN_URL"),
            ),
        )


def with_late_stores(ctx: Context, root: Path) -> Context:
    """The context of a service, which may start before its origin is mounted: that is looked for at each use of a store."""
    from fedops.adapters.git_repo import GitRepository

    repo = ctx.repository
    assert isinstance(repo, GitRepository)
    inner = ctx.stores

    def opened(url: str) -> Store:
        if not url.startswith("ocidir:"):
            return inner(url)
        return store(url, relative_to=origin_folder(repo, root), main=repo)

    return dataclasses.replace(ctx, stores=opened)


@contextmanager
def open_clone(start: Path | None = None) -> Iterator[tuple[Context, GitRepository]]:
    """Like open_context, for commands that judge the clone itself, and what it remembers."""
    with open_context(start) as (_, ctx):
        from fedops.adapters.git_repo import GitRepository

        assert isinstance(ctx.repository, GitRepository)
        yield ctx, ctx.repository


@contextmanager
def open_reader(start: Path | None = None) -> Iterator[tuple[Path, GitRepository, Forge]]:
    """Open git and the forge alone, for commands that read no model: numpy is not imported.

    Yields:
        The federation root, the clone and the forge.
    """
    from fedops.cli.scratch import command_folder

    root = federation_root(start or Path.cwd())
    federation = read_federation(root)
    with command_folder(), clone_of(root, federation) as repo:
        yield root, repo, forge(federation, repo, signing_key(root))
