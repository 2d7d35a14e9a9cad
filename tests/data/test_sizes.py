from __future__ import annotations

import pytest

from tensorgrow.data.sizes import bytes_text


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (7232, "7.23 kB"), (5e6, "5 MB"), (1.5e12, "1.5e+03 GB")],
)
def test_sizes_in_words(count, text):
    assert bytes_text(count) == text
