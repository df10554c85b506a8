"""What holds for every test.

Processes that tests start hear Ctrl-C, also where the tests themselves do not.

Hypothesis draws the same examples in every run, so that a failure in CI is one that anybody can repeat.
`--hypothesis-profile=explore` draws new ones, to hunt with; what it finds becomes an `@example`.
"""

from __future__ import annotations

import signal

from hypothesis import settings

# No deadline: two cores shared with three brokers, and an example that is slow once is no finding.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, print_blob=True)
settings.load_profile("repeatable")

# What a shell starts in the background ignores SIGINT, and so would the processes that it starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
