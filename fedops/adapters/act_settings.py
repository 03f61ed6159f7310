"""What a repository's settings give to workflows: secrets and variables, in files that act reads, never on a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fedops.adapters.private_file import write_private


@dataclass(frozen=True)
class Settings:
    """Name -> value, as on GitHub's pages "Secrets" and "Variables"."""

    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)
    variables: Mapping[str, str] = field(default_factory=dict)

    def for_event(self, event: str) -> Settings:
        """What a run gets: nothing for a pull request, as on GitHub where it comes from a fork."""
        return Settings() if event.startswith("pull_request") else self


def place_settings(settings: Settings, token: str, room: Path) -> list[str]:
    """Write act's two files into a run's own folder, with the run's token among the secrets; options of its command line."""
    options: list[str] = []
    for name, values in (
        ("secret", {**settings.secrets, "GITHUB_TOKEN": token}),
        ("var", settings.variables),
    ):
        # NOTE: act takes its usual form of lines for a shell's, with $NAME, quotes and escapes; by its end, this is YAML.
        path = room / f"{name}s.yml"
        write_private(path, json.dumps(values, ensure_ascii=False))
        options += [f"--{name}-file", str(path)]
    return options
