"""Requests of every API and version with odd values, put to a real process: it answers or closes, and lives on."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from protocol.api_keys import ApiKey
from protocol.messages.metadata import MetadataRequest
from tests.broker.handlers.hostile.requests import LONGEST, NOT_UTF8, TOPIC, HostileRequest, every_request
from tests.integration.conftest import ClusterFactory
from tests.integration.wire import Wire

#: Members of groups wait for each other.
PARKED = (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP)
MIB = 1 << 20


@pytest.mark.parametrize("text", ["x" * LONGEST, NOT_UTF8], ids=["longest", "no utf8"])
def test_no_version_of_any_request_harms_a_process(make_cluster: ClusterFactory, text: str) -> None:
    cluster = make_cluster(1, offsets__topic__num__partitions="3")
    broker = cluster[1]
    assert broker.process is not None
    pid, rss_bytes = broker.process.pid, broker.rss_bytes
    with Wire(broker.port) as bystander:
        assert bystander.create(TOPIC, partitions=2, replicas=1).error_code == 0
        topic_id = bystander.call(MetadataRequest(topics=None), 12).topics[0].topic_id
        for request in every_request(random.Random(3), text):
            _put(broker.port, request, topic_id)
        assert bystander.call(MetadataRequest(topics=None), 12).brokers
    assert broker.process.pid == pid and broker.is_running
    assert broker.rss_bytes < rss_bytes + 100 * MIB
    cluster.terminate(1)
    cluster.start(1)
    with Wire(broker.port) as wire:
        assert wire.call(MetadataRequest(topics=None), 12).brokers
    assert "Traceback" not in broker.log_text()


def _put(port: int, request: HostileRequest, topic_id: UUID) -> None:
    """On a connection of its own; it must be answered, or the connection closed."""
    with Wire(port, timeout_s=0.1 if request.api.key in PARKED else 20) as wire:
        wire.send_frame(request.frame(1, topic_id, ""))
        if not request.is_answered:
            return
        try:
            wire.receive_frame()
        except ConnectionResetError:
            pass  # what means nothing is not answered
        except TimeoutError:
            assert request.api.key in PARKED, request
