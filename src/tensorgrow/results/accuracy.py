"""How well a network does, and what kind of number says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

ErrorKind = Literal["relative", "deviance", "loss", "nats"]

ERROR_NAMES: dict[ErrorKind, str] = {
    "relative": "relative error",
    "deviance": "relative deviance",
    "loss": "loss",
    "nats": "nats",
}


@dataclass(frozen=True)
class Errors:
    """How well a network does, and what kind of number says so.

    Attributes
    ----------
    total
        On all data the network was fitted to in the end.
    kind
        "relative": the norm of the residual relative to that of the data. "deviance": root of the deviance
        relative to that of a network of zeros. "loss": the value of a loss. "nats": a mean negative
        log-likelihood.
    train, validation
        Where data was held out: on the fitted and on the held-out data, before the last fit to both.
    test
        Where the truth is known: on entries that were not observed.
    """

    total: float
    kind: ErrorKind = "relative"
    train: float | None = None
    validation: float | None = None
    test: float | None = None

    @property
    def name(self) -> str:
        """What to call the numbers in texts, tables and pictures."""
        return ERROR_NAMES[self.kind]

    @property
    def is_relative(self) -> bool:
        """Whether the numbers are relative to the data: 0 is perfect, 1 is what a network of zeros has."""
        return self.kind in ("relative", "deviance")

    @property
    def measure(self) -> float:
        """What `max_error` is compared with: the error on held-out data where there is some."""
        return self.total if self.validation is None else self.validation


def read_errors(header: Mapping[str, Any]) -> Errors:
    """Errors of a file; in format version 1 they have no kind, and the total stands beside them."""
    if "relative_error" not in header:
        return Errors(**header["errors"])
    parts = {k.removesuffix("_error"): v for k, v in header.get("errors", {}).items()}
    kinds: dict[str, ErrorKind] = {"density": "nats", "loss": "deviance", "training": "loss"}
    kind: ErrorKind = next((kinds[name] for name in kinds if name in header["info"]), "relative")
    return Errors(header["relative_error"], kind, **parts)
