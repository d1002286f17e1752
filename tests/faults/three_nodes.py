"""A cluster of three nodes on this machine, and what may happen to nodes: run as a process of its own by the tests."""

import json
import sys
import time
import warnings
from collections.abc import Callable

from ray.cluster_utils import Cluster
from sklearn.datasets import load_digits

import nearfar as nf
from nearfar.parameter_server.progress import Report

SETTINGS = {"steps": 600, "block_size": 200, "seed": 3, "workers": 2, "report_every": 50, "checkpoint_every": 0.5}


def slow_until(workers: int) -> Callable[[Report], None]:
    """Let steps come slowly until so many workers have taken one: else all is done before a process has started."""

    def wait(report: Report) -> None:
        if len(report.workers) < workers:
            time.sleep(0.3)

    return wait


def main(what: str) -> None:
    """Train while something happens to the nodes; the last report is printed as JSON."""
    warnings.simplefilter("ignore")
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "object_store_memory": 100 << 20})
    nodes = [cluster.add_node(num_cpus=1, object_store_memory=100 << 20) for _ in range(2)]
    happened = []

    def at_100(report: Report) -> None:
        if report.step < 100 or happened:
            return
        happened.append(what)
        if what == "a node dies":
            cluster.remove_node(nodes[0], allow_graceful=False)
        if what == "a node joins":
            cluster.add_node(num_cpus=2, object_store_memory=100 << 20)

    options = nf.RayOptions(address=cluster.address, hang_after=20.0, servers=2)
    settings = nf.TrainingSettings(**SETTINGS)
    on_report = [at_100]
    if what == "a node joins":
        options = nf.RayOptions(address=cluster.address, min_workers=2)
        settings = nf.TrainingSettings(**SETTINGS | {"workers": 4, "consistency": "ssp:4", "report_every": 4})
        on_report.append(slow_until(workers=4))
    result = nf.train(*load_digits(return_X_y=True), settings, engine=nf.RayEngine(options), on_report=on_report)
    cluster.shutdown()
    sys.stdout.write(json.dumps(result.history[-1].to_json() | {"happened": happened}) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
