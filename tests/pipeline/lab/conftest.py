"""The nodes of the producer's tests, here, too."""

from __future__ import annotations

from tests.pipeline.producer.conftest import make_node, node, topic

__all__ = ["make_node", "node", "topic"]
