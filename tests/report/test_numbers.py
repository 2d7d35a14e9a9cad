from __future__ import annotations

from tensorgrow.report.numbers import shape_text


def test_shapes_in_words():
    assert shape_text((4,) * 8 + (3,)) == "4⁸×3"
    assert shape_text((7, 7, 12)) == "7×7×12"
    assert shape_text((2,) * 12) == "2¹²"
