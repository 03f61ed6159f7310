"""Every test runs in its own HOME, with no git configuration of the machine and no credentials."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.sshkeys import SshKey

# Started in the background of a shell, we ignore Ctrl-C, and so would every program that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# In CI the same examples each time: a fault that only luck finds is a matter for `make soak`, not for the next commit.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("here", deadline=None)
settings.load_profile("ci" if os.environ.get("CI") == "true" else "here")


@pytest.fixture(autouse=True)
def isolated_environment(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A new HOME; git reads neither the machine's nor the user's configuration and never prompts."""
    home = tmp_path_factory.mktemp("home")
    for name in list(os.environ):
        if name.startswith(("GIT_", "FEDOPS_", "GITHUB_", "DVC_", "SSH_AUTH_SOCK", "XDG_")):
            monkeypatch.delenv(name)
    for name, value in {
        "HOME": str(home),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        "GIT_TERMINAL_PROMPT": "0",
        "GIT_AUTHOR_NAME": "Test",
        "GIT_AUTHOR_EMAIL": "test@example.invalid",
        "GIT_COMMITTER_NAME": "Test",
        "GIT_COMMITTER_EMAIL": "test@example.invalid",
        "LC_ALL": "C.UTF-8",
    }.items():
        monkeypatch.setenv(name, value)
    return home


@pytest.fixture
def no_schedule(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of `fedops local up`: no quarter of an hour passes, whenever the test runs."""
    monkeypatch.setattr("fedops.app.local_events.cron_due", lambda cron, after, until: False)


@pytest.fixture(scope="session")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, SshKey]:
    """An SSH key for each person of the forge's tests."""
    from tests.forge_worlds import make_keys

    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture(scope="session")
def template(keys: Mapping[str, SshKey], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An origin with its clones, to be copied and never changed."""
    from tests.forge_worlds import git_template

    return git_template(keys, tmp_path_factory.mktemp("template"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Show what tests that passed have to tell people, also from another process: `record_property("shown", text)`."""
    for report in terminalreporter.stats.get("passed", []):
        for name, text in report.user_properties:
            if name == "shown":
                terminalreporter.write_line(str(text))


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """In CI every test must run: one that was skipped fails the run, unless it says that it is for another system."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("CI") != "true" or reporter is None or hasattr(session.config, "workerinput"):
        return
    skipped = [r for r in reporter.stats.get("skipped", []) if "another system" not in str(r.longrepr)]
    for report in skipped:
        reporter.write_line(f"skipped in CI: {report.nodeid}: {report.longrepr}", red=True)
    if skipped and session.exitstatus == 0:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
