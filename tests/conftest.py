"""What holds for every test."""

from __future__ import annotations

from hypothesis import settings

# Two cores shared with three brokers: an example that is slow once is no finding.
settings.register_profile("varve", deadline=None, print_blob=True)
settings.load_profile("varve")
