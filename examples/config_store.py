"""A configuration store: the settings of services, in one compacted topic. Every instance reads it as a whole when it
starts, and follows it from then on. So none of them needs a database, and none reads a setting that was withdrawn."""

from __future__ import annotations

import json

from tables import Table, bootstrap_server, view


def main() -> None:
    table = Table(
        bootstrap_server(__doc__),
        "settings",
        # Few records that matter much: compacted when a tenth is dirty, and at the latest after an hour.
        {"min.cleanable.dirty.ratio": "0.1", "max.compaction.lag.ms": "3600000", "segment.ms": "3600000"},
    )
    for limit in (10, 20, 50):
        table.put("payments", json.dumps({"retries": 3, "limit": limit}))
    table.put("search", json.dumps({"index": "v2"}))
    table.put("beta-banner", json.dumps({"shown": True}))
    table.put("beta-banner", None)  # withdrawn: instances that start later never see it

    settings, _ = view(table, str)
    for service, value in sorted(settings.items()):
        print(f"{service}: {value}")


if __name__ == "__main__":
    main()
