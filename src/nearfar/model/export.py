"""A metric for other tools: FAISS, PyTorch and ONNX. What they hold needs no nearfar any more.

Each export is the map of :meth:`Metric.transform`, so Euclidean distance between its results is the metric.
"""

import importlib
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from nearfar.data.points import Floats
from nearfar.errors import InvalidInput, MissingExtra
from nearfar.files import atomic_file
from nearfar.model.metric import Metric
from nearfar.objective.lift import Lift

if TYPE_CHECKING:
    import faiss
    import torch

_ONNX_OPSET, _ONNX_FORMAT = 13, 8  # of 2021: every runtime since then reads them
_ONNX_MOST_BYTES = (1 << 31) - (1 << 16)


def to_faiss(metric: Metric) -> "faiss.IndexPreTransform":
    """An empty FAISS index that takes raw points and searches, exactly, by this metric.

    FAISS gives squared distances. For another kind of index, put its ``chain.at(0)``, which is L, before that one.

    Returns
    -------
    faiss.IndexPreTransform
        A linear transform and an ``IndexFlatL2``: ``index.add(points)``, ``index.search(points, k)``.
    """
    faiss = _imported("faiss", "search")
    if metric.lift is not None:
        raise InvalidInput(
            "this metric has a lift, which FAISS cannot hold; transform the points first, and add "
            "metric.transform(points) to a faiss.IndexFlatL2"
        )
    bias = _bias(metric)
    linear = faiss.LinearTransform(metric.n_features, metric.rank, bias is not None)
    faiss.copy_array_to_vector(np.ascontiguousarray(metric.components).ravel(), linear.A)
    if bias is not None:
        faiss.copy_array_to_vector(bias, linear.b)
    linear.is_trained = True
    return faiss.IndexPreTransform(linear, faiss.IndexFlatL2(metric.rank))


def to_torch(metric: Metric) -> "torch.nn.Module":
    """The map of :meth:`Metric.transform` as a PyTorch module on float32 tensors.

    Returns
    -------
    torch.nn.Linear
        With a bias if the metric has a centre. A metric with a lift becomes a ``torch.fx.GraphModule`` of two linear
        layers, ``lift`` and ``components``, and the cosine between them.
    """
    torch = _imported("torch", "torch")
    lift, bias = metric.lift, _bias(metric)
    if lift is None:
        return _linear(torch, metric.components, bias)
    layers = {
        "lift": _linear(torch, lift.weights.T, lift.phases),
        "components": _linear(torch, metric.components * _height(lift), bias),
    }
    fx = importlib.import_module("torch.fx")
    graph = fx.Graph()
    angles = graph.call_module("lift", (graph.placeholder("points"),))
    graph.output(graph.call_module("components", (graph.call_function(torch.cos, (angles,)),)))
    # Not a module class of our own: this one is pickled with its code, so it loads where nearfar is not installed.
    return fx.GraphModule(layers, graph, "Metric")


def to_onnx(metric: Metric, path: str | Path) -> None:
    """Write the map of :meth:`Metric.transform` as an ONNX model, whole or not at all.

    It takes ``points``, float32 of shape (n, d) for any n, and gives ``projections`` of shape (n, k).
    """
    onnx = _imported("onnx", "onnx")
    helper, floats = onnx.helper, onnx.TensorProto.FLOAT
    lift, bias = metric.lift, _bias(metric)
    # Each step: an operation, and the constant it takes beside the result of the step before.
    steps: list[tuple[str, str, Floats | None]] = []
    if lift is not None:
        height = np.array(_height(lift), np.float32)
        steps += [("MatMul", "weights", lift.weights), ("Add", "phases", lift.phases)]
        steps += [("Cos", "waves", None), ("Mul", "height", height)]
    steps.append(("MatMul", "components", metric.components.T))
    if bias is not None:
        steps.append(("Add", "bias", bias))
    constants = {name: constant for _, name, constant in steps if constant is not None}
    _check_size(constants)
    nodes, last = [], "points"
    for i, (operation, name, constant) in enumerate(steps):
        result = "projections" if i == len(steps) - 1 else f"{operation}_{name}"
        nodes.append(helper.make_node(operation, [last] if constant is None else [last, name], [result]))
        last = result
    graph = helper.make_graph(
        nodes,
        "metric",
        [helper.make_tensor_value_info("points", floats, ["n", metric.n_features])],
        [helper.make_tensor_value_info("projections", floats, ["n", metric.rank])],
        [onnx.numpy_helper.from_array(np.ascontiguousarray(each), name) for name, each in constants.items()],
    )
    model = helper.make_model(
        graph,
        producer_name="nearfar",
        ir_version=_ONNX_FORMAT,
        opset_imports=[helper.make_opsetid("", _ONNX_OPSET)],
    )
    with atomic_file(Path(path)) as file:
        file.write(model.SerializeToString())


def _check_size(constants: dict[str, Floats]) -> None:
    n_bytes = sum(constant.nbytes for constant in constants.values())
    if n_bytes > _ONNX_MOST_BYTES:
        raise InvalidInput(
            f"the model takes {n_bytes / 1e9:.1f} GB, and an ONNX file holds at most 2 GB; "
            "lower the rank with metric.reduced(...)"
        )


def _imported(package: str, extra: str) -> Any:
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingExtra(f"{package} is not installed; pip install 'nearfar[{extra}]'") from error


def _height(lift: Lift) -> np.float32:
    return np.float32(math.sqrt(2 / lift.dim))


def _bias(metric: Metric) -> Floats | None:
    """What takes the centre off: −L · centre."""
    if metric.centre is None:
        return None
    bias: Floats = -(metric.components @ metric.centre)
    return bias


def _linear(torch: Any, weight: Floats, bias: Floats | None) -> Any:
    # Made on the meta device, so that weights are not drawn at random only to be replaced.
    linear = torch.nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, device="meta")
    linear.weight = torch.nn.Parameter(torch.from_numpy(np.array(weight, order="C")))
    if bias is not None:
        linear.bias = torch.nn.Parameter(torch.from_numpy(np.array(bias)))
    return linear
