"""What can keep a job from being done. None of these says anything about the records themselves."""

from __future__ import annotations


class PipelineError(Exception):
    """The job could not be done; the message says what helps. The command exits with code 2."""


class ClusterUnavailable(PipelineError):
    """The cluster did not answer, or refused what the job needs of it."""


class ConnectorUnavailable(PipelineError):
    """Spark's Kafka connector could not be had on this machine by any of the known ways."""


class SlotsMissing(PipelineError):
    """The Spark cluster runs fewer tasks at once than the job needs."""


class JavaMissing(PipelineError):
    """No Java runtime of the version that Spark needs."""
