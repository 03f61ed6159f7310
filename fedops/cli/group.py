"""Groups of commands."""

from __future__ import annotations

import difflib
from typing import NoReturn

import click

from fedops.render.text import clean


class Group(click.Group):
    """A group of commands that answers an unknown name with the nearest one."""

    def known_names(self, ctx: click.Context) -> list[str]:
        """What may be meant, as it is typed after the group's own name."""
        return self.list_commands(ctx)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and self.get_command(ctx, name) is None:
            self._refuse(ctx, name)
        return super().resolve_command(ctx, args)

    def _refuse(self, ctx: click.Context, name: str) -> NoReturn:
        names = {known.rpartition(" ")[2]: known for known in reversed(self.known_names(ctx))}
        near = difflib.get_close_matches(name, names, n=1)
        meant = f" -> did you mean `{ctx.command_path} {names[near[0]]}`?" if near else ""
        raise click.UsageError(f"no such command: {clean(name)}{meant}", ctx)
