"""Requests that name very many things."""

from __future__ import annotations

import time
from collections.abc import Iterator

from broker.handlers import APIS
from protocol.api_keys import ApiKey
from tests.broker.handlers.hostile.long_arrays import array_paths, long_request
from tests.broker.handlers.hostile.requests import TOPIC, HostileRequest
from tests.hostile.attacks.attack import Seen
from tests.hostile.target import Target

#: Members of groups wait for each other.
_PARKED = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
_ANSWERED_WITHIN_S = 20
#: Within what a request may name, and beyond.
_COUNTS = (4_000, 19_000, 99_000)


def long_requests(target: Target) -> Seen:
    """Of every API and every array in it: the array with 4,000, 19,000 and 99,000 elements, different ones or always
    the same. All have to be answered, or their connections closed, within 20 seconds."""
    seen = Seen()
    topic_id = target.create(TOPIC, 2)
    nodes = list(target.nodes)
    for number, (request, what) in enumerate(_requests()):
        with target.connect(nodes[number % len(nodes)], _ANSWERED_WITHIN_S) as wire:
            began = time.monotonic()
            try:
                wire.send_frame(request.frame(1, topic_id, ""))
                if request.is_answered and request.api.key not in _PARKED:
                    wire.receive_frame()
                seen.counts["answered"] += 1
            except TimeoutError:
                seen.counts["no answer"] += 1
                seen.defects.append(f"{what}: no answer within {_ANSWERED_WITHIN_S} s")
            except OSError:
                seen.counts["closed"] += 1
            took_s = time.monotonic() - began
            seen.counts["slowest, ms"] = max(seen.counts["slowest, ms"], round(took_s * 1000))
    return seen


def _requests() -> Iterator[tuple[HostileRequest, str]]:
    for api in APIS:
        for path in array_paths(api.request, api.max_version):
            for count in _COUNTS:
                for distinct in (True, False):
                    body = long_request(api.request, api.max_version, path, count, distinct=distinct)
                    yield (
                        HostileRequest(api, api.max_version, "app", body),
                        f"{api.key.name}{path} x {count}{' different' if distinct else ''}",
                    )
