"""`sf.enforce("my_package")`: every annotation of a package enforced, from its import on.

import shapeflow as sf

sf.enforce("my_package")
import my_package
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType

from shapeflow.errors import EnforceError
from shapeflow.runtime.hook import Finder, install, uninstall
from shapeflow.runtime.plan import Options


class Enforcement:
    """The packages that are enforced, until the end of a `with` block or until `uninstall()`.

    Modules that were imported meanwhile stay enforced; `sf.unenforced` switches them off.
    """

    def __init__(self, finder: Finder) -> None:
        self._finder = finder

    @property
    def packages(self) -> tuple[str, ...]:
        """The packages that were named."""
        return self._finder.packages

    @property
    def modules(self) -> tuple[str, ...]:
        """The modules that were imported with checks so far."""
        return tuple(sorted(self._finder.loaded))

    def uninstall(self) -> None:
        """Modules that are imported from now on are not enforced."""
        uninstall(self._finder)

    def __enter__(self) -> Enforcement:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.uninstall()

    def __repr__(self) -> str:
        return f"<enforced: {', '.join(self.packages)}; {len(self.modules)} modules imported>"


def enforce(*packages: str, every_item: bool | None = None, across_methods: bool = True) -> Enforcement:
    """Enforce the annotations of packages: of every function, method and dataclass in their modules.

    Call it before they are imported. Without a name, the packages are those of `[tool.shapeflow] enforce` in the
    nearest pyproject.toml. The options are those of `sf.typed`. `SHAPEFLOW_ENFORCE=0` in the environment leaves the
    modules as they are.

    Raises EnforceError for a package that is imported already, or where none is named; and at the import itself for an
    annotation that cannot be read.
    """
    names = packages or _configured()
    for name in names:
        if not isinstance(name, str) or not all(part.isidentifier() for part in name.split(".")):
            raise EnforceError(
                f'a package is enforced by its name, as in sf.enforce("my_package.models"), not {name!r}'
            )
    return Enforcement(install(names, Options(every_item, across_methods)))


def _configured() -> tuple[str, ...]:
    from shapeflow.check.config import read_config

    config = read_config(Path.cwd())
    if not config.enforce:
        raise EnforceError(
            'no package is named: write sf.enforce("my_package"), or enforce = ["my_package"] in [tool.shapeflow] of '
            "pyproject.toml"
        )
    return config.enforce
