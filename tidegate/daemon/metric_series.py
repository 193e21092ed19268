"""The metrics of the catalogue for one pipeline, as objects of the Prometheus client. Nothing is global."""

from __future__ import annotations

from collections.abc import Callable

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, ProcessCollector, disable_created_metrics

from tidegate.daemon.metric_catalogue import CATALOGUE, MetricKind


class MetricSeries:
    """Finds the series of a metric by its name and labels; the label `pipeline` is added to each."""

    def __init__(self, pipeline: str) -> None:
        self.registry = CollectorRegistry()
        self._pipeline = pipeline
        self._counters: dict[str, Counter] = {}
        self._gauges: dict[str, Gauge] = {}
        self._histograms: dict[str, Histogram] = {}
        makers: dict[MetricKind, Callable[..., Counter | Gauge | Histogram]] = {
            MetricKind.COUNTER: Counter,
            MetricKind.GAUGE: Gauge,
            MetricKind.HISTOGRAM: Histogram,
        }
        for spec in CATALOGUE.values():
            more = {"buckets": spec.buckets} if spec.kind is MetricKind.HISTOGRAM else {}
            metric = makers[spec.kind](spec.name, spec.help, ("pipeline", *spec.labels), registry=self.registry, **more)
            match metric:
                case Counter():
                    self._counters[spec.name] = metric
                case Gauge():
                    self._gauges[spec.name] = metric
                case Histogram():
                    self._histograms[spec.name] = metric
        # Process-wide in this library. Without it every counter has a second series with its creation time.
        disable_created_metrics()  # type: ignore[no-untyped-call]  # library's gap
        ProcessCollector(registry=self.registry)

    def counter(self, name: str, *labels: str) -> Counter:
        """Finds the counter with these labels."""
        return self._counters[name].labels(self._pipeline, *labels)

    def gauge(self, name: str, *labels: str) -> Gauge:
        """Finds the gauge with these labels."""
        return self._gauges[name].labels(self._pipeline, *labels)

    def histogram(self, name: str, *labels: str) -> Histogram:
        """Finds the histogram with these labels."""
        return self._histograms[name].labels(self._pipeline, *labels)

    def remove_gauge(self, name: str, *labels: str) -> None:
        """Stops exporting a gauge whose value is unknown."""
        self._gauges[name].remove(self._pipeline, *labels)

    def clear_gauges(self, name: str) -> None:
        """Stops exporting a gauge for all labels."""
        self._gauges[name].clear()
