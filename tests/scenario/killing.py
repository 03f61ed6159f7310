"""Whole processes on real git and a store on disk, killed with SIGKILL at a random moment, and then started again."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from safetensors.numpy import save_file

from fedops.adapters.git_locks import git_folder, locks
from fedops.adapters.git_repo import GitRepository
from fedops.app.offer import Wanted
from fedops.app.submit import Submitted, submit
from fedops.core.ids import SiteId
from tests.scenario.fed import GitFed, Scratch, Upload, arrays
from tests.scenario.oracle import check_all

SITES = ("hospital-a", "hospital-b")
PARTS = ("*.part-????????????????", ".*.????????")  # what is written before it is renamed: models, documents
AGE = 2 * 3600.0  # seconds after which whatever a dead process left counts as left


@dataclass
class Killer:
    """One federation and its runs, each of which may be killed.

    Attributes:
        killed: how many runs were killed before their end; `submits`, how many of them handed an update in.
        ended: how many ended before the signal came.
        versions: that were made, once it was checked.
    """

    folder: Path
    rng: random.Random
    killed: int = 0
    ended: int = 0
    log: list[str] = field(default_factory=list)
    versions: int = 0
    submits: int = 0
    _value: float = 1.0

    def __post_init__(self) -> None:
        self.fed = GitFed(self.folder, rules={"trigger": {"quorum": 2}}, people=("lena", "leo", *SITES), sites=SITES)
        self.clone = self.fed.new_clone("bot")
        # Seconds that an undisturbed one takes: kills fall anywhere in that time.
        self.seconds: dict[str, float] = {}
        for site in SITES:
            self._timed("submit", partial(self._submit, site))
        self._timed("reconcile", lambda: self.fed.reconcile(self.fed.context(repository=self.clone)))
        assert self.fed.version.version == 1

    def _timed(self, what: str, work: Callable[[], object]) -> None:
        start = time.monotonic()
        work()
        self.seconds[what] = time.monotonic() - start

    def _trained(self, site: str) -> Wanted:
        """A site has trained on the current version: a file that nobody else has."""
        self._value += 1.0
        file = self.fed.scratch.new() / "update.safetensors"
        save_file(arrays(self._value), file)
        return Wanted(SiteId(site), file, self.fed.main(site).version.version, 10, {"loss": 0.25})

    def _submit(self, site: str, trained: Wanted | None = None) -> None:
        """What `fedops submit` does, in the site's clone."""
        wanted = trained or self._trained(site)
        repository = self.fed.repositories[site]
        assert isinstance(repository, GitRepository)
        ctx = self.fed.context(repository=repository, forge=self.fed.forge(site))
        done = submit(ctx, repository.path, wanted, key=self.fed.keys[site].private)
        assert isinstance(done, Submitted), done
        blob = self.fed.origin / "store" / "sites" / site / "blobs" / "sha256" / done.record.sha256
        self.fed.uploads[site, done.record.manifest] = Upload(done.record, blob.read_bytes())

    def kill_some(self) -> None:
        """Sites submit, one perhaps in processes that are killed, each going on where the one before was; then runs are
        killed, and at last one is not.
        """
        victim = self.rng.choice(SITES)
        for site in SITES:
            trained = self._trained(site)
            for _ in range(self.rng.choice((0, 0, 1, 3)) if site == victim else 0):
                self.submits += self._kill("submit", partial(self._submit, site, trained))
            self._submit(site, trained)
        for _ in range(self.rng.randint(1, 6)):
            ctx = self.fed.context(repository=self.clone)
            if not self._kill("reconcile", partial(self.fed.reconcile, ctx)):
                break
        self.go_on()

    def _kill(self, what: str, work: Callable[[], object]) -> bool:
        """Do some work in a process group of its own, and kill all of that; False: it had come to its end."""
        self._close_all()  # reading processes must not be shared with the child
        scratch, start = self.fed.scratch.new(), time.monotonic()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            self.fed.scratch = Scratch(scratch)
            with suppress(BaseException):
                work()
                os._exit(0)
            os._exit(1)
        with suppress(ProcessLookupError):  # both do it, so that it is done, whoever comes first
            os.setpgid(child, child)
        end = start + self.rng.uniform(0, 1.1 * self.seconds[what])
        while time.monotonic() < end:
            ended, code = os.waitpid(child, os.WNOHANG)
            if ended:
                assert code == 0, f"{what}: failed by itself"
                self.ended += 1
                self.seconds[what] = time.monotonic() - start  # this machine is as busy as it is now
                return False
            time.sleep(0.002)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        self.killed += 1
        self.log.append(f"{what} killed after {end - start:.3f} of {self.seconds[what]:.3f} s")
        return True

    def _close_all(self) -> None:
        for repository in self.fed._open:
            repository.close()

    def go_on(self) -> None:
        """The run after a kill, minutes later; what it needs must be done by nobody else."""
        self._age()
        self.fed.clock.sleep(AGE)
        before = self.fed.version.version
        self._timed("reconcile", lambda: self.fed.reconcile(self.fed.context(repository=self.clone)))
        self.log.append(f"v{before} -> v{self.fed.version.version}")

    def _age(self) -> None:
        """Let the time pass after which locks and unfinished files count as left behind."""
        folders = [git_folder(path) for path in (self.fed.origin, *(r.path for r in self.fed._open))]
        left = [lock for folder in folders if folder is not None for lock in locks(folder)]
        for path in (*left, *self._parts(), *self._of_git()):
            self.log.append(f"left: {path.relative_to(self.folder)}")
            os.utime(path, (time.time() - AGE,) * 2)

    def _parts(self) -> list[Path]:
        """Unfinished files in the store and in the sites' own folders; a dead runner's went with its machine."""
        clones = [self.fed.repositories[site] for site in SITES]
        places = [self.fed.origin / "store", *(c.path / ".fedops" for c in clones if isinstance(c, GitRepository))]
        return [path for place in places for pattern in PARTS for path in place.rglob(pattern)]

    def _of_git(self) -> list[Path]:
        """What git was writing in the origin and in the clone of CI: objects, packs, and folders for what is pushed."""
        folders = (self.fed.origin / "objects", self.clone.path / ".git" / "objects")
        return [path for folder in folders for path in sorted(folder.rglob("tmp_*"))]

    def check(self) -> None:
        """After one more undisturbed round: nothing lost, doubled, half-visible, left lying about or broken."""
        self.versions = self.fed.version.version
        for site in SITES:
            self._submit(site)
        self.go_on()
        check_all(self.fed, rerun=lambda: self.fed.reconcile().changed)
        for path in (self.fed.origin, self.clone.path):
            done = subprocess.run(["git", "-C", str(path), "fsck", "--full", "--no-dangling"], capture_output=True)
            assert (done.returncode, done.stdout) == (0, b""), (path, done)
            folder = git_folder(path)
            assert folder is not None
            assert list(locks(folder)) == []
            # As `git gc --auto` does, two weeks later; what is left lying until then is in nobody's way.
            subprocess.run(["git", "-C", str(path), "prune", "--expire=1.hour.ago"], check=True)
        assert self._parts() == []
        assert self._of_git() == []
