"""docs/settings-reference.md says what settings there are."""

from __future__ import annotations

from tests.documents.settings_page import PAGE, with_tables


def test_the_page_lists_every_setting_as_it_is_declared() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == with_tables(page), "python -m tests.documents.settings_page writes the tables"
