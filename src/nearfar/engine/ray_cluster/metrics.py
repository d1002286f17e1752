"""Figures of a run where Ray users look for them: in the metrics of the cluster, which its dashboard shows."""

from ray.util.metrics import Gauge

from nearfar.parameter_server.progress import Progress


class RunMetrics:
    """Gauges that follow a run."""

    def __init__(self) -> None:
        self._gauges = {
            name: Gauge(f"nearfar_{name}", description=text)
            for name, text in (
                ("steps", "Pushes that are part of L."),
                ("pairs", "Pairs that gradients were computed on."),
                ("workers", "Workers that take part."),
                ("pushed_bytes", "Bytes that workers pushed."),
                ("pulled_bytes", "Bytes that workers pulled."),
                ("lost_pushes", "Pushes that were lost with a server."),
            )
        }

    def show(self, version: int, workers: int, progress: Progress) -> None:
        """Set every gauge to what it is now."""
        values = (version, progress.pairs, workers, progress.bytes, progress.pulled_bytes, progress.lost)
        for gauge, value in zip(self._gauges.values(), values, strict=True):
            gauge.set(float(value))
