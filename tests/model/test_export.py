"""Exports, loaded by the tool they are for, measure what the metric measures."""

import io
import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import nearfar as nf
from nearfar.errors import InvalidFile, InvalidInput, MissingExtra
from nearfar.model import export
from nearfar.objective.lift import rbf_lift

D, RANK, LIFTED = 64, 12, 256
WITHIN = {"rtol": 1e-5}


@pytest.fixture(scope="module")
def points(digits: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Two sets of 300 points that differ row by row."""
    X = digits[0].astype(np.float32)
    return X[:300], X[300:600]


def a_metric(*, centre: bool = False, lift: bool = False, rank: int = RANK) -> nf.Metric:
    rng = np.random.default_rng(0)
    width = LIFTED if lift else D
    return nf.Metric(
        rng.normal(size=(rank, width)),
        centre=rng.normal(size=width) if centre else None,
        lift=rbf_lift(D, LIFTED, 40.0, None, seed=0) if lift else None,
    )


METRICS = {
    "linear": a_metric(),
    "centred": a_metric(centre=True),
    "one component": a_metric(rank=1),
    "lifted": a_metric(lift=True),
    "lifted and centred": a_metric(centre=True, lift=True),
}
LINEAR = {name: metric for name, metric in METRICS.items() if metric.lift is None}


def lengths(differences: np.ndarray) -> np.ndarray:
    return np.linalg.norm(differences.astype(np.float64), axis=1)


def assert_reproduced(metric: nf.Metric, points: tuple[np.ndarray, np.ndarray], left, right) -> None:
    """The exported map of the points is what the metric makes of them, and so are the distances."""
    assert left.dtype == np.float32
    assert left.shape == (len(points[0]), metric.rank)
    true = metric.distance(*points)
    scale = np.abs(metric.transform(points[0])).max()
    np.testing.assert_allclose(left, metric.transform(points[0]), rtol=1e-5, atol=1e-5 * scale)
    # A distance along one component may be nearly 0 between points that are not near.
    np.testing.assert_allclose(lengths(left - right), true, rtol=1e-5, atol=1e-6 * scale if metric.rank == 1 else 0)


@pytest.mark.parametrize("metric", LINEAR.values(), ids=LINEAR)
def test_faiss_index_takes_raw_points_and_gives_the_distances(metric, points, tmp_path: Path) -> None:
    faiss = pytest.importorskip("faiss", reason="needs the extra search")
    index = nf.to_faiss(metric)
    assert index.ntotal == 0
    faiss.write_index(index, str(tmp_path / "index.faiss"))
    index = faiss.read_index(str(tmp_path / "index.faiss"))
    left, right = points
    assert_reproduced(metric, points, index.chain.at(0).apply(left), index.chain.at(0).apply(right))
    index.add(right)
    squared, found = index.search(left[:10], 5)
    expected, distances = nf.search(metric, left[:10], right, 5)
    if metric.rank > 1:
        np.testing.assert_array_equal(found, expected)
        np.testing.assert_allclose(np.sqrt(squared), distances, **WITHIN)
        measured = metric.distance(np.repeat(left[:10], 5, axis=0), right[found.ravel()])
        np.testing.assert_allclose(np.sqrt(squared).ravel(), measured, **WITHIN)


def test_faiss_index_outlives_what_it_was_made_of(points) -> None:
    pytest.importorskip("faiss", reason="needs the extra search")
    index = nf.to_faiss(a_metric(centre=True))
    index.add(points[0])
    _, found = index.search(points[0][:50], 1)
    np.testing.assert_array_equal(found.ravel(), np.arange(50))


def test_faiss_cannot_hold_a_lift() -> None:
    pytest.importorskip("faiss", reason="needs the extra search")
    with pytest.raises(InvalidInput, match=r"lift.*metric\.transform"):
        nf.to_faiss(METRICS["lifted"])


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_torch_module_gives_the_distances_after_saving_and_loading(metric, points) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    file = io.BytesIO()
    torch.save(nf.to_torch(metric), file)
    file.seek(0)
    module = torch.load(file, weights_only=False)
    with torch.no_grad():
        left, right = (module(torch.from_numpy(each)).numpy() for each in points)
    assert_reproduced(metric, points, left, right)


def test_torch_linear_has_a_bias_only_with_a_centre() -> None:
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    plain, centred = nf.to_torch(a_metric()), nf.to_torch(a_metric(centre=True))
    assert type(plain) is type(centred) is torch.nn.Linear
    assert plain.bias is None
    assert centred.bias is not None


@pytest.mark.parametrize("metric", [METRICS["centred"], METRICS["lifted and centred"]], ids=["linear", "lifted"])
def test_torch_module_can_be_trained_further_and_leaves_the_metric_alone(metric, points) -> None:
    torch = pytest.importorskip("torch", reason="needs the extra torch")
    before = metric.components.copy()
    module = nf.to_torch(metric)
    step = torch.optim.SGD(module.parameters(), lr=1.0)
    module(torch.from_numpy(points[0])).square().mean().backward()
    assert all(parameter.grad is not None for parameter in module.parameters())
    step.step()
    np.testing.assert_array_equal(metric.components, before)


def test_torch_module_of_a_lift_loads_without_nearfar(tmp_path: Path, points) -> None:
    pytest.importorskip("torch", reason="needs the extra torch")
    (tmp_path / "module.pickle").write_bytes(pickle.dumps(nf.to_torch(METRICS["lifted"])))
    script = (
        "import pickle, sys, torch; sys.modules['nearfar'] = None; "
        f"module = pickle.load(open({str(tmp_path / 'module.pickle')!r}, 'rb')); "
        f"assert module(torch.zeros(2, {D})).shape == (2, {RANK})"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_onnx_model_gives_the_distances_for_any_number_of_points(metric, points, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx", reason="needs the extra onnx")
    runtime = pytest.importorskip("onnxruntime", reason="needs the extra test")
    nf.to_onnx(metric, tmp_path / "metric.onnx")
    onnx.checker.check_model(str(tmp_path / "metric.onnx"), full_check=True)
    session = runtime.InferenceSession(tmp_path / "metric.onnx", providers=["CPUExecutionProvider"])
    assert session.get_inputs()[0].shape == ["n", D]
    assert session.get_outputs()[0].shape == ["n", metric.rank]
    left, right = (session.run(["projections"], {"points": each})[0] for each in points)
    assert_reproduced(metric, points, left, right)
    assert session.run(None, {"points": points[0][:1]})[0].shape == (1, metric.rank)


def test_onnx_model_replaces_an_older_one_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("onnx", reason="needs the extra onnx")
    path = tmp_path / "metric.onnx"
    path.write_text("older")
    monkeypatch.setattr(export, "_ONNX_MOST_BYTES", 1000)
    with pytest.raises(InvalidInput, match=r"2 GB.*reduced"):
        nf.to_onnx(a_metric(), path)
    assert path.read_text() == "older"
    monkeypatch.undo()
    nf.to_onnx(a_metric(), str(path))
    assert path.stat().st_size > RANK * D * 4
    assert [each.name for each in tmp_path.iterdir()] == ["metric.onnx"]
    with pytest.raises(InvalidFile, match="cannot write"):
        nf.to_onnx(a_metric(), tmp_path / "no" / "metric.onnx")


@pytest.mark.parametrize(
    ("package", "extra", "make"),
    [
        ("faiss", "search", nf.to_faiss),
        ("torch", "torch", nf.to_torch),
        ("onnx", "onnx", lambda metric: nf.to_onnx(metric, "never-written.onnx")),
    ],
    ids=["faiss", "torch", "onnx"],
)
def test_a_missing_package_names_the_extra_that_brings_it(package, extra, make, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtra, match=rf"{package} is not installed; pip install 'nearfar\[{extra}\]'"):
        make(a_metric())
