"""Learn the structure of a tensor network from data: graph, ranks and weights."""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._version import __version__ as __version__

if TYPE_CHECKING:
    from ._surface import *  # noqa: F403
    from .estimators import TNClassifier as TNClassifier
    from .estimators import TNImputer as TNImputer
    from .estimators import TNRegressor as TNRegressor

# Not in __all__, because they need scikit-learn: a star import must not.
_ESTIMATORS = ("TNClassifier", "TNImputer", "TNRegressor")


def __getattr__(name: str) -> Any:
    """Import everything at the first use: torch takes longer than the command line needs for its help."""
    if name in _ESTIMATORS:
        return getattr(import_module(".estimators", __name__), name)
    if name == "__all__" or not name.startswith("_"):
        surface = import_module("._surface", __name__)
        if name == "__all__" or name in surface.__all__:
            return getattr(surface, name)
        if module := sys.modules.get(f"{__name__}.{name}"):
            return module
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__getattr__("__all__"), *_ESTIMATORS})
