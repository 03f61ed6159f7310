"""Options that name the file of fedops that CI installs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from fedops.core.errors import ConfigError

if TYPE_CHECKING:
    from fedops.core.settings import Wheel

wheel_hash_option = click.option(
    "--wheel-hash", metavar="SHA256", help="Of the fedops wheel that CI on GitHub installs."
)
wheel_url_option = click.option(
    "--wheel-url", metavar="URL", help="Where CI gets it: https://….whl or ./….whl. Default: the package index."
)


def parse_wheel(sha256: str | None, url: str | None) -> Wheel | None:
    """What the two options say; None without them.

    Raises:
        ConfigError: no hash, or not one; no address of a wheel.
    """
    from fedops.core.documents import validate
    from fedops.core.settings import Wheel

    if sha256 is None:
        if url is not None:
            raise ConfigError("--wheel-url: of which file? -> with --wheel-hash", hint="sha256sum THE.whl")
        return None
    try:
        return validate({"sha256": sha256.removeprefix("sha256:"), "url": url}, Wheel, "wheel")
    except ConfigError as e:
        raise ConfigError(f"--wheel-hash, --wheel-url: {e.message}", hint="sha256sum THE.whl") from e
