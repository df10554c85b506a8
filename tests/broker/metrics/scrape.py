"""What a node shows at /metrics, as Prometheus would parse it."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from tests.broker.admin_http.http_client import get
from tests.broker.world import World

Labels = frozenset[tuple[str, str]]


class Scrape:
    """The samples of one text. The text is well-formed: each family is there once, each series once."""

    def __init__(self, text: str) -> None:
        self.text = text
        headers = [line.split(" ")[2] for line in text.splitlines() if line.startswith("# TYPE ")]
        assert len(headers) == len(set(headers)), "a family is there twice"
        self._samples: dict[str, dict[Labels, float]] = {}
        for each in text_string_to_metric_families(text):
            for sample in each.samples:
                of_name = self._samples.setdefault(sample.name, {})
                labels = frozenset(sample.labels.items())
                assert labels not in of_name, sample
                of_name[labels] = sample.value

    @property
    def names(self) -> set[str]:
        return set(self._samples)

    def all(self, name: str, **labels: str) -> dict[Labels, float]:
        """The series that have these labels, and perhaps others."""
        found = self._samples.get(name, {})
        return {each: value for each, value in found.items() if labels.items() <= dict(each).items()}

    def labels_of(self, name: str) -> set[frozenset[str]]:
        """The sets of label names with which a metric comes."""
        return {frozenset(key for key, _ in labels) for labels in self._samples.get(name, {})}

    def __call__(self, name: str, **labels: str) -> float:
        """The only series with these labels."""
        (value,) = self.all(name, **labels).values()
        return value


def scrape(world: World, node_id: int = 1) -> Scrape:
    answer = get(world, "/metrics", node_id)
    assert answer.status == 200, answer.body
    return Scrape(answer.body)
