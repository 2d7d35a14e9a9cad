"""What tensorgrow is compared with: fixed formats, and other searches for structures.

Every baseline takes a tensor and the common keywords of `tensorgrow.decompose` (or `complete`), and gives a
`Result`. `run` calls one by its name. `interpolate` and `halrtc` are none of them: they fill an array and
have no network.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from ..data.observations import is_listed
from ..errors import OptionError
from ..results import Result
from .als_completion import tr_als, tt_als
from .greedy import greedy, random_walk
from .halrtc import halrtc
from .inner_fit import FitOptions
from .interpolation import interpolate
from .svd import hosvd, ht_svd, tt_svd
from .svd_ins_tn import svd_ins_tn
from .tensorly_completion import cp_completion, tucker_completion
from .tensorly_sweeps import cp, tensorly_tt, tucker
from .tnale import tnale
from .tnga import genetic
from .tnls import tnls

__all__ = [
    "COMPLETION",
    "DECOMPOSITION",
    "FitOptions",
    "cp",
    "cp_completion",
    "genetic",
    "greedy",
    "halrtc",
    "hosvd",
    "ht_svd",
    "interpolate",
    "random_walk",
    "run",
    "svd_ins_tn",
    "tensorly_tt",
    "tnale",
    "tnls",
    "tr_als",
    "tt_als",
    "tt_svd",
    "tucker",
    "tucker_completion",
]

DECOMPOSITION: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {
        "cp": cp,
        "tucker": tucker,
        "tt": tensorly_tt,
        "tt_svd": tt_svd,
        "hosvd": hosvd,
        "ht_svd": ht_svd,
        "greedy": greedy,
        "random_walk": random_walk,
        "genetic": genetic,
        "tnls": tnls,
        "tnale": tnale,
        "svd_ins_tn": svd_ins_tn,
    }
)
COMPLETION: Mapping[str, Callable[..., Result]] = MappingProxyType(
    {"cp": cp_completion, "tucker": tucker_completion, "tt_als": tt_als, "tr_als": tr_als}
)


def run(name: str, x: Any, mask: Any = None, **options: Any) -> Result:
    """Run a baseline by its name.

    Parameters
    ----------
    name
        A key of `DECOMPOSITION`; where entries are missing, of `COMPLETION`.
    x, mask
        The tensor; or, for completion, what `tensorgrow.complete` takes.
    options
        Of the baseline.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.einsum("i,j,k->ijk", np.ones(3), np.arange(4.0), np.ones(5))
    >>> run("tt_svd", x, max_error=1e-6).num_parameters
    12
    """
    if mask is None and not is_listed(x) and name in DECOMPOSITION:
        return DECOMPOSITION[name](x, **options)
    if name in COMPLETION:
        return COMPLETION[name](x, mask, **options)
    kind, known = ("completion", COMPLETION) if mask is not None or is_listed(x) else ("", DECOMPOSITION)
    raise OptionError(f"there is no {kind} baseline {name!r}; choose one of {', '.join(known)}")
