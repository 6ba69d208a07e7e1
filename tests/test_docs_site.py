"""The folder of the built documentation."""

from __future__ import annotations

from pathlib import Path

import pytest

from magnetar import docs_site


def test_the_folder_is_in_the_package() -> None:
    assert docs_site.folder() in (None, Path(docs_site.__file__).parent / "site")


def test_a_folder_without_a_first_page_is_no_site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docs_site, "_FOLDER", tmp_path)
    assert docs_site.folder() is None
    (tmp_path / "index.html").write_text("", encoding="utf-8")
    assert docs_site.folder() == tmp_path
