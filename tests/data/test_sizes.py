from __future__ import annotations

import pytest

from tensorgrow.data.sizes import bytes_text, stored_bytes


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (7232, "7.23 kB"), (5e6, "5 MB"), (1.5e12, "1.5e+03 GB")],
)
def test_sizes_in_words(count, text):
    assert bytes_text(count) == text


def test_bytes_of_files_and_folders(tmp_path):
    (tmp_path / "a").write_bytes(bytes(7))
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "c").write_bytes(bytes(5))
    assert (stored_bytes(tmp_path / "a"), stored_bytes(tmp_path)) == (7, 12)
