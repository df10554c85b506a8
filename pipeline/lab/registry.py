"""The experiments, by the names that `lab` takes. Each is imported when it is run."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING

from pipeline.lab.experiment import Experiment

if TYPE_CHECKING:
    from pipeline.lab.bench import Bench
    from pipeline.report.sweep import Sweep


def _of(module: str) -> Callable[[Bench], Sweep]:
    def run(bench: Bench) -> Sweep:
        findings: Sweep = import_module(f"pipeline.lab.{module}").run(bench)
        return findings

    return run


EXPERIMENTS: dict[str, Experiment] = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            "acks",
            "0, 1, all: throughput, latency, and the records lost when a leader dies or the power fails",
            _of("acks"),
        ),
        Experiment(
            "buffers",
            "a thousand partitions and a bounded queue: what blocks when, and how that shows",
            _of("buffers"),
        ),
        Experiment(
            "codecs",
            "gzip, snappy, lz4, zstd by batch size: ratio, MB/s, CPU of client and brokers",
            _of("codecs"),
        ),
        Experiment(
            "density",
            "records per batch by batch.size, linger.ms, rate and partitions, beside the model",
            _of("density"),
        ),
        Experiment(
            "idempotence",
            "lost acknowledgements and killed producers: what is doubled, and what prevents it",
            _of("idempotence"),
        ),
        Experiment(
            "in-flight",
            "throughput and latency over longer ways, by requests in flight; a follower that stops now and then",
            _of("in_flight"),
        ),
        Experiment(
            "retry-storm",
            "many clients that retry into a slow broker: load and recovery, by retry policy",
            _of("retry_storm"),
        ),
        Experiment(
            "sinks",
            'from Spark into a cluster: Python producers, the official connector, format("varve")',
            _of("sinks"),
        ),
    )
}
