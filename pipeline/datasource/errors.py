"""What the source and the sink refuse to do. Spark shows the message as the cause of the failed query or task."""

from __future__ import annotations


class DataSourceError(Exception):
    """Base of all errors that this data source raises by itself."""


class InvalidOption(DataSourceError):
    """An option is unknown, malformed, missing, or contradicts another one. The message names it."""


class InvalidFrame(DataSourceError):
    """The frame has no columns that can be written to a topic, or asks for columns that the source lacks."""


class ClusterUnavailable(DataSourceError):
    """The cluster gave no usable answer in time."""


class DataLoss(DataSourceError):
    """Records that the query has not read are gone. The message says which. `failOnDataLoss=false` goes on instead."""


class DeliveryFailed(DataSourceError):
    """Records of a task were not acknowledged. The task fails, and Spark runs it again or gives up."""


class ReplayDiffers(DataSourceError):
    """A batch that was committed before has other records now: exactly-once cannot be kept."""
