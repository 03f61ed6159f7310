"""What the hook of `fedops dvc install-hook` runs as soon as DVC is imported: its modules are extended one by one."""

from __future__ import annotations

import sys
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def install() -> None:
    """Let the modules of DVC be extended when they are loaded; harmless when repeated."""
    if not any(isinstance(finder, _Finder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Finder())


class _Finder(MetaPathFinder):
    """Finds the modules of DVC that are extended, and extends each when it has been loaded."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        extend = _EXTENSIONS.get(fullname)
        spec = PathFinder.find_spec(fullname, path, target) if extend is not None else None
        if extend is None or spec is None or spec.loader is None:
            return None
        load = spec.loader.exec_module

        def load_and_extend(module: ModuleType) -> None:
            load(module)
            _attempt(extend, module)

        spec.loader.exec_module = load_and_extend  # type: ignore[method-assign]  # the loader is this module's alone
        return spec


def _attempt(extend: Callable[[ModuleType], None], module: ModuleType) -> None:
    """Extend a module; a DVC that does not fit works on as it is, for all other projects, and that is told."""
    try:
        extend(module)
    except Exception as e:  # noqa: BLE001 whatever another DVC does, the plain command must not break
        from fedops.adapters.dvc_remote import misfit

        error = misfit(e)
        print(f"fedops: {error.message}\n  hint: {error.hint}, or `fedops dvc remove-hook`", file=sys.stderr)


def _schema(module: ModuleType) -> None:
    from fedops.adapters.dvc_remote import extend_schema
    from fedops.cli.wire import dvc_stores

    extend_schema(module, dvc_stores())


def _cloud(module: ModuleType) -> None:
    from fedops.adapters.dvc_remote import extend_cloud

    extend_cloud(module)


def _repository(module: ModuleType) -> None:
    from fedops.adapters.dvc_remote import extend_repository

    extend_repository(module)


def _plots(module: ModuleType) -> None:
    from fedops.adapters.dvc_plots import extend_plots

    extend_plots(module)


_EXTENSIONS: dict[str, Callable[[ModuleType], None]] = {
    "dvc.config_schema": _schema,
    "dvc.data_cloud": _cloud,
    "dvc.repo": _repository,
    "dvc.render.converter.vega": _plots,
}
