"""What holds for every test.

Hypothesis draws the same examples in every run, so that a failure in CI is one that anybody can repeat.
`--hypothesis-profile=explore` draws new ones, to hunt with; what it finds becomes an `@example`.
"""

from __future__ import annotations

from hypothesis import settings

# No deadline: two cores shared with three brokers, and an example that is slow once is no finding.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")
