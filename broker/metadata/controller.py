"""The decisions of the metadata leader: each method reads the image and returns records, and changes nothing.

The broker appends the records, replays them into the leader's image at append, and answers when they are
committed (replication.md section 9). A decision therefore sees all earlier ones, committed or not, provided
that it is appended and replayed before the next is asked for.

Where a decision stands follows from what it is about: `broker.metadata.decisions` has a module for each family, and
here is what the cluster has one of.
"""

from __future__ import annotations

from broker.metadata.decisions.brokers import BrokerDecisions
from broker.metadata.decisions.reassignments import ReassignmentDecisions
from broker.metadata.decisions.settings import SettingDecisions
from broker.metadata.decisions.topics import TopicDecisions
from broker.metadata.record_codec import encode
from broker.metadata.records import ClusterRecord, ProducerIdsRecord
from broker.metadata.requests import Decision, ProducerIdBlock
from protocol.errors import ErrorCode, KafkaError

#: Producer ids are int64 on the wire.
_MAX_PRODUCER_ID = 2**63 - 1


class Controller(TopicDecisions, BrokerDecisions, ReassignmentDecisions, SettingDecisions):
    """All that can be asked of the metadata leader."""

    def name_cluster(self, cluster_id: str) -> Decision[None]:
        """The first leader of a new cluster records the id that formation gave it."""
        if self._image.cluster_id == cluster_id:
            return Decision((), None)
        return Decision((encode(ClusterRecord(cluster_id)),), None)

    def allocate_producer_ids(self, count: int = 1000) -> Decision[ProducerIdBlock]:
        """A block for one broker. It is recorded before any id of it is used (replication.md section 8)."""
        assert count > 0
        first = self._image.next_producer_id
        if first + count > _MAX_PRODUCER_ID:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "all producer ids are used up")
        return Decision((encode(ProducerIdsRecord(first + count)),), ProducerIdBlock(first, count))
