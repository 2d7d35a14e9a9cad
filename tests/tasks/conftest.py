"""Runs that several tests look at."""

from __future__ import annotations

import pytest

import tensorgrow as tg
from tests.densities import KINDS
from tests.tasks.completions import FAST, SMALL, noisy, some


@pytest.fixture(scope="session")
def plain():
    """A quick run on noisy data that stops by validation."""
    x, mask = noisy(), some(SMALL.dims, 0.8)
    return x, mask, tg.complete(x, mask, truth=x, **FAST)


@pytest.fixture(scope="session", params=KINDS)
def kind(request):
    """A kind of density."""
    return request.param
