from __future__ import annotations

import pytest

from tests.contraction.cases import LARGE


@pytest.fixture(params=list(LARGE))
def large(request):
    return LARGE[request.param]
