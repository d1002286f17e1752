"""Searches find the same with FAISS and without it, from Python and on the command line."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.neighbors import NearestNeighbors

import nearfar as nf
from nearfar.cli import main
from nearfar.data.dataset import write_dataset
from nearfar.errors import InvalidInput, InvalidPoints, InvalidSettings
from nearfar.evaluation import search as searching
from nearfar.model import distance as distances_module
from nearfar.model.euclidean import Euclidean
from nearfar.objective.lift import rbf_lift

D = 64


@pytest.fixture(params=["faiss", "blocks"])
def way(request, monkeypatch) -> str:
    """With FAISS, which must then be used, or as if it were not installed."""
    if request.param == "faiss":
        faiss = pytest.importorskip("faiss", reason="needs the extra search")
        monkeypatch.setattr(searching, "neighbours", None)
        assert searching._faiss() is faiss
    else:
        monkeypatch.setitem(sys.modules, "faiss", None)
        assert searching._faiss() is None
    return request.param


@pytest.fixture(scope="module")
def points(digits) -> tuple[np.ndarray, np.ndarray]:
    """Queries and references; no two references are equal."""
    X = digits[0] + np.random.default_rng(1).normal(scale=0.1, size=digits[0].shape)
    return X[1200:1500], X[:1200]


def a_metric(**options) -> nf.Metric:
    return nf.Metric(np.random.default_rng(0).normal(size=(10, D)), **options)


def lifted() -> nf.Metric:
    return nf.Metric(np.random.default_rng(0).normal(size=(10, 200)), lift=rbf_lift(D, 200, 40.0, None, seed=0))


METRICS = {"linear": a_metric(), "centred": a_metric(centre=np.full(D, 8.0)), "lifted": lifted(), "plain": Euclidean()}


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("k", [1, 10, 1200])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
def test_found_are_those_of_scikit_learn_at_the_distances_of_the_metric(metric, points, k) -> None:
    queries, references = points
    indices, distances = nf.search(metric, queries, references, k)
    assert (indices.dtype, distances.dtype) == (np.int64, np.float32)
    assert indices.shape == distances.shape == (len(queries), k)
    known = NearestNeighbors(algorithm="brute").fit(metric.transform(references).astype(np.float64))
    expected, _ = known.kneighbors(metric.transform(queries).astype(np.float64), k)
    np.testing.assert_allclose(distances, expected, rtol=2e-5)
    asked = np.repeat(queries[:20], k, axis=0)
    measured = metric.distance(asked, references[indices[:20].ravel()])
    np.testing.assert_allclose(distances[:20].ravel(), measured, rtol=1e-5)
    assert all(len(set(row)) == k for row in indices[:20].tolist())


@pytest.mark.parametrize("store", [np.asarray, sp.csr_matrix], ids=["dense", "sparse"])
@pytest.mark.parametrize("metric", METRICS.values(), ids=METRICS)
@pytest.mark.parametrize("block_bytes", [32 << 20, 20_000], ids=["whole", "blocks"])
def test_the_answer_is_the_same_with_and_without_faiss(metric, store, block_bytes, points, monkeypatch) -> None:
    pytest.importorskip("faiss", reason="needs the extra search")
    queries, references = (store(each) for each in points)
    with_faiss = nf.search(metric, queries, references)
    monkeypatch.setattr(distances_module, "_BLOCK_BYTES", block_bytes)
    in_blocks = nf.search(metric, queries, references)
    monkeypatch.setitem(sys.modules, "faiss", None)
    without = nf.search(metric, queries, references)
    assert with_faiss[0].shape == (len(points[0]), 10)
    for indices, distances in (in_blocks, without):
        np.testing.assert_array_equal(indices, with_faiss[0])
        np.testing.assert_allclose(distances, with_faiss[1], rtol=1e-5)


@pytest.mark.usefixtures("way")
def test_a_point_far_from_the_origin_finds_itself_at_distance_0(points) -> None:
    references = points[1] + 100.0
    indices, distances = nf.search(a_metric(), references[::7], references, 1)
    np.testing.assert_array_equal(indices.ravel(), np.arange(0, len(references), 7))
    assert distances.max() < 0.01  # from norms and products it would be up to 0.09


@pytest.mark.usefixtures("way")
def test_equal_points_come_in_the_order_of_their_indices() -> None:
    references = np.repeat(np.eye(4), 3, axis=0)
    indices, distances = nf.search(nf.Metric(np.eye(4)), np.eye(4)[1:2], references, 3)
    np.testing.assert_array_equal(indices, [[3, 4, 5]])
    np.testing.assert_allclose(distances, 0, atol=1e-6)


def test_sparse_euclidean_needs_no_dense_points(points) -> None:
    queries, references = (sp.csr_matrix(np.where(each > 8, each, 0)) for each in points)
    indices, distances = nf.search(Euclidean(), queries, references, 4)
    expected, _ = NearestNeighbors(algorithm="brute").fit(references).kneighbors(queries, 4)
    np.testing.assert_allclose(distances, expected, rtol=1e-5)
    assert indices.shape == (len(points[0]), 4)


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize(
    ("arguments", "kind", "message"),
    [
        ((a_metric(), np.ones((2, D)), np.ones((5, D)), 6), InvalidSettings, "k is 6.*from 1 to 5"),
        ((a_metric(), np.ones((2, D)), np.ones((5, D)), 0), InvalidSettings, "k is 0.*from 1 to 5"),
        ((a_metric(), np.ones((2, D)), np.ones((5, D)), 1.5), InvalidSettings, r"k is 1\.5.*whole number"),
        ((a_metric(), np.ones((2, 3)), np.ones((5, D))), InvalidPoints, "3 features.*of 64"),
        ((a_metric(), np.full((2, D), np.nan), np.ones((5, D)), 1), InvalidPoints, "point 0 has NaN"),
        ((a_metric(), np.ones((2, D)), np.full((5, D), np.inf), 1), InvalidPoints, "point 0 has NaN or infinity"),
        ((a_metric(), 1e25 * np.eye(D), -1e25 * np.eye(D), 1), InvalidPoints, "too large for float32"),
        ((np.eye(D), np.ones((2, D)), np.ones((5, D)), 1), InvalidInput, "metric is a ndarray; expected a Metric"),
    ],
)
def test_wrong_input_is_named(arguments, kind, message) -> None:
    with pytest.raises(kind, match=message):
        nf.search(*arguments)


@pytest.fixture(scope="module")
def files(points, digits, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A metric, datasets ``labelled``, ``named`` (labels with brackets) and ``bare``, and files of queries."""
    folder = tmp_path_factory.mktemp("search")
    queries, references = points
    a_metric().save(folder / "m.safetensors")
    write_dataset(folder / "labelled", references, digits[1][:1200])
    write_dataset(folder / "named", references, np.array([f"[{label}]" for label in digits[1][:1200]]))
    write_dataset(folder / "bare", references)
    write_dataset(folder / "queries", queries[:3])
    np.save(folder / "queries.npy", queries[:3])
    np.save(folder / "many.npy", queries[:150])
    np.savez(folder / "queries.npz", asked=queries[:3], other=queries[3:])
    return folder


def nearfar_search(files: Path, capsys, *arguments: str | Path, dataset: str = "labelled") -> tuple[str, str]:
    """What ``nearfar search`` prints."""
    with pytest.raises(SystemExit) as exit_:
        main(["search", str(files / "m.safetensors"), str(files / dataset), *(str(each) for each in arguments)])
    captured = capsys.readouterr()
    assert not exit_.value.code, captured.err
    return captured.out, captured.err


@pytest.mark.usefixtures("way")
@pytest.mark.parametrize("source", [("queries.npy",), ("queries.npz", "--points-key", "asked"), ("queries",)])
def test_json_holds_every_neighbour(files, points, digits, source, capsys) -> None:
    out, _ = nearfar_search(files, capsys, "--query", files / source[0], *source[1:], "-k", "4", "--json")
    found = json.loads(out)
    indices, distances = nf.search(a_metric(), points[0][:3].astype(np.float32), points[1].astype(np.float32), 4)
    assert [each["query"] for each in found] == [0, 1, 2]
    near = [[each[name] for query in found for each in query["neighbours"]] for name in ("index", "label", "distance")]
    np.testing.assert_array_equal(near[0], indices.ravel())
    np.testing.assert_array_equal(near[1], digits[1][indices.ravel()])
    np.testing.assert_allclose(near[2], distances.ravel(), rtol=1e-5)


@pytest.mark.parametrize(("dataset", "label"), [("labelled", "{}"), ("named", "[{}]"), ("bare", None)])
def test_table_has_a_line_a_neighbour_with_its_label_if_known(files, digits, dataset, label, capsys) -> None:
    out, err = nearfar_search(files, capsys, "--query", files / "queries.npy", dataset=dataset)
    lines = [line.strip("│ ").split("│") for line in out.splitlines() if line.startswith("│")]
    cells = [[cell.strip() for cell in line] for line in lines]
    assert len(cells) == 3 * 10
    assert [cell[:2] for cell in cells] == [[str(query), str(rank)] for query in range(3) for rank in range(1, 11)]
    assert ("label" in out) == (label is not None)
    for cell in cells:
        assert len(cell) == 4 + (label is not None)
        if label is not None:
            assert cell[3] == label.format(digits[1][int(cell[2])])
    assert err == ""


def test_a_long_table_is_cut_and_says_so(files, capsys) -> None:
    out, err = nearfar_search(files, capsys, "--query", files / "many.npy", "-k", "1")
    assert sum(line.startswith("│") for line in out.splitlines()) == 100
    assert err == "note: 50 more queries are not shown; --json and --out give all\n"


@pytest.mark.parametrize("dataset", ["labelled", "bare"])
def test_out_holds_the_arrays(files, tmp_path, dataset, capsys) -> None:
    path = tmp_path / "found.npz"
    out, _ = nearfar_search(files, capsys, "--query", files / "many.npy", "-k", "2", "--out", path, dataset=dataset)
    assert out == f"{path}: 2 neighbours of each of 150 queries\n"
    with np.load(path) as found:
        assert set(found) == {"indices", "distances"} | ({"labels"} if dataset == "labelled" else set())
        assert {array.shape for array in found.values()} == {(150, 2)}
        assert (np.diff(found["distances"], axis=1) >= 0).all()
