"""A page of metrics as a test wants to ask it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from prometheus_client.parser import text_string_to_metric_families


class Page:
    """The samples of one scrape, read with the parser of prometheus_client."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = self._samples.setdefault(sample.name, {})
                series[frozenset(sample.labels.items())] = sample.value

    def __contains__(self, name: str) -> bool:
        return name in self._samples

    def __len__(self) -> int:
        return sum(len(series) for series in self._samples.values())

    def names(self) -> frozenset[str]:
        """Names of all samples."""
        return frozenset(self._samples)

    def series(self, name: str, **labels: str) -> Iterator[tuple[Mapping[str, str], float]]:
        """Labels and value of each sample of this name that has these labels."""
        for key, value in self._samples.get(name, {}).items():
            found = dict(key)
            if labels.items() <= found.items():
                yield found, value

    def by(self, label: str, name: str, **labels: str) -> dict[str, float]:
        """Values by one label."""
        return {found[label]: value for found, value in self.series(name, **labels)}

    def value(self, name: str, **labels: str) -> float | None:
        """The one sample of this name with these labels; None when it is absent."""
        values = [value for _, value in self.series(name, **labels)]
        if len(values) > 1:
            raise AssertionError(f"{len(values)} samples are called {name} {labels}")
        return values[0] if values else None

    def cpu_seconds(self) -> float:
        """Seconds of all CPUs in all modes: whatever the machine does, each tick of the agent moves it."""
        return sum(self.by("mode", "clusterwatt_cpu_seconds_total").values())
