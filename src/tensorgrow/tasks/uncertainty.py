"""How far a completed tensor may be off, from the errors on entries that were held out."""

from __future__ import annotations

import math

import torch

from ..algebra.uncertainty import ErrorModel, Uncertainty, fit_factors, slice_factors
from ..data.arrays import times_power
from ..network import TensorNetwork
from ..objectives import ObservedLeastSquares

# A residual tells of the noise what the fit left of it; at least this share, as leverages are estimates.
LEAST_LEFT = 0.1


def assess(
    fitted: ObservedLeastSquares,
    network: TensorNetwork,
    everything: ObservedLeastSquares,
    final: TensorNetwork,
    exponent: int,
) -> tuple[Uncertainty, torch.Tensor]:
    """Tell what errors to expect of a network, and what to expect of every entry before the last fit.

    Parameters
    ----------
    fitted, network
        Data of which some is held out, and the network fitted to the rest of it: says how large errors are.
    everything, final
        The same data with nothing held out, and the network fitted to that: the one asked about.
    exponent
        The power of two that the data was divided by.

    Returns
    -------
    uncertainty
        Of the network fitted to everything, in the units of the user.
    deviations
        Of every entry as the network fitted to some predicted it, in the units computed in.
    """
    structure, arrays = network.structure, fitted.to_arrays(network)
    off = (fitted.values - fitted.predict(structure, arrays)).abs().double()
    seen, held, columns = fitted.index.fitted, fitted.index.held_out, fitted.index.entries.columns
    # Of data that is met exactly, the rounding is left.
    rounding = fitted.epsilon * float(fitted.values.abs().double().square().mean().sqrt()) + 1e-300
    noise = max(float(off[seen].square().mean().sqrt()), rounding)
    _, leverage = fitted.precisions(structure, arrays, noise)
    squares = (off[seen] / noise).square() / (1.0 - leverage[seen]).clamp_min(LEAST_LEFT)
    mean = max(float(squares.mean()), 1e-300)
    factors = fit_factors(squares / mean, [c[seen] for c in columns], fitted.dims)
    expected = noise * (mean * slice_factors(factors, columns) * (1.0 + leverage)).sqrt()
    precisions, _ = everything.precisions(final.structure, everything.to_arrays(final), noise)
    model = ErrorModel(
        noise=times_power(noise * math.sqrt(mean), exponent),
        exponent=exponent,
        factors=tuple(f.cpu() for f in factors),
        precisions=tuple(p.float().cpu() for p in precisions),
    )
    known = Uncertainty.measured(off[held] / expected[held], model)
    return known, known.size * expected
