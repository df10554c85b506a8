"""The API table. `ls broker/handlers` is the list of what this broker answers: one API, one file.

Each module has `API`: key, versions, request type and the function that handles it. The function runs at once,
inside the socket's callback, and either answers the request or keeps it and answers later; it never waits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker.handlers import (
    alter_client_quotas,
    alter_configs,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    consumer_group_describe,
    consumer_group_heartbeat,
    create_acls,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_quorum,
    describe_topic_partitions,
    elect_leaders,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leave_group,
    list_config_resources,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    sync_group,
    unregister_broker,
)
from broker.network.connection import Request
from broker.serving.api import Api
from protocol.codec import Decoder, decoder
from protocol.errors import ProtocolError
from protocol.schema import Message

if TYPE_CHECKING:
    from broker.node import Node

APIS: tuple[Api, ...] = (
    produce.API,
    fetch.API,
    list_offsets.API,
    metadata.API,
    offset_commit.API,
    offset_fetch.API,
    find_coordinator.API,
    join_group.API,
    heartbeat.API,
    leave_group.API,
    sync_group.API,
    describe_groups.API,
    list_groups.API,
    api_versions.API,
    create_topics.API,
    delete_topics.API,
    delete_records.API,
    init_producer_id.API,
    offset_for_leader_epoch.API,
    describe_acls.API,
    create_acls.API,
    delete_acls.API,
    describe_configs.API,
    alter_configs.API,
    alter_replica_log_dirs.API,
    describe_log_dirs.API,
    create_partitions.API,
    delete_groups.API,
    elect_leaders.API,
    incremental_alter_configs.API,
    alter_partition_reassignments.API,
    list_partition_reassignments.API,
    offset_delete.API,
    describe_client_quotas.API,
    alter_client_quotas.API,
    describe_quorum.API,
    describe_cluster.API,
    describe_producers.API,
    unregister_broker.API,
    consumer_group_heartbeat.API,
    consumer_group_describe.API,
    list_config_resources.API,
    describe_topic_partitions.API,
)


#: Decoded, a request can take many times its size on the wire; how many elements it has is bounded in protocol.wire.
#: Only Produce has a reason to be large, and its records are not decoded.
MAX_SMALL_REQUEST_BYTES = 8 << 20

#: A process that dies closes its connections one after the other, in about a millisecond, those of clients often before
#: those of the other nodes. A client asks at once who leads now and would be told of the dead one: librdkafka believes
#: it, finds nobody there, and asks again one or two seconds later. After this long the others know.
NEWS_S = 0.005


class Handlers:
    """Decodes a request's body and calls its handler."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._by_key: dict[int, Api] = {api.key: api for api in APIS}
        #: (api key << 16 | version) -> (decoder, api), filled at first use.
        self._ready: dict[int, tuple[Decoder[Message], Api]] = {}

    def dispatch(self, request: Request, frame: memoryview, body_position: int) -> None:
        """Raises ProtocolError for what Kafka answers by closing the connection: unknown API or version."""
        ready = self._ready.get(request.api_key << 16 | request.api_version)
        if ready is None:
            ready = self._prepare(request)
            if ready is None:
                api_versions.answer_unknown_version(request)
                return
        self._node.heartbeat.wake()
        decode, api = ready
        if len(frame) > MAX_SMALL_REQUEST_BYTES and api is not produce.API:
            raise ProtocolError(
                f"{api.key.name}: {len(frame)} bytes are too many for a request without records"
            )
        # Bytes behind the body are passed over, as Apache Kafka does: librdkafka sends some with Metadata.
        body, _ = decode(frame, body_position)
        if api.waits_for_news is not None and api.waits_for_news(request, body):
            self._node.loop.call_later(NEWS_S, self._handle_late, api, request, body)
        elif self._node.quotas.limits_requests:
            self._handle_measured(api, request, body)
        else:
            api.handle(self._node, request, body)

    def _handle_late(self, api: Api, request: Request, body: Message) -> None:
        if not request.is_abandoned:
            self._handle_measured(api, request, body)

    def _handle_measured(self, api: Api, request: Request, body: Message) -> None:
        """What is done for a request later on (a long poll that ends, a commit) is not measured."""
        clock, began_s = self._node.clock, self._node.clock.worked_s()
        api.handle(self._node, request, body)
        request.throttle(self._node.quotas.requested(request.client_id, clock.worked_s() - began_s))

    def _prepare(self, request: Request) -> tuple[Decoder[Message], Api] | None:
        api = self._by_key.get(request.api_key)
        if api is None:
            raise ProtocolError(f"unknown api key {request.api_key}")
        if not api.min_version <= request.api_version <= api.max_version:
            if api is api_versions.API:
                return None
            raise ProtocolError(f"{api.key.name} v{request.api_version} is not served")
        ready = (decoder(api.request, request.api_version), api)
        self._ready[request.api_key << 16 | request.api_version] = ready
        return ready
