"""Figures: what is drawn is what was measured, however long the series and whatever the points."""

import io
import json
from itertools import pairwise

import matplotlib.image
import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from sklearn.decomposition import PCA

from nearfar.data.points import as_points
from nearfar.errors import InvalidSettings
from nearfar.model.euclidean import Euclidean
from nearfar.model.metric import Metric
from nearfar.parameter_server.progress import staleness_bin, staleness_of_bin
from nearfar.report.figure import numbers, run_style, thinned
from nearfar.report.history_figures import history_figures, server_figures, staleness, worker_speeds
from nearfar.report.measuring import measure, spectrum
from nearfar.report.metric_figures import Judged, histogram_figure, map_figure, precision_recall_figure, roc_figure
from nearfar.report.page import to_json
from nearfar.report.pictures import Looks, image_shape, png
from nearfar.report.reading import read_runs
from nearfar.report.subject import Subjects


@pytest.fixture(scope="module")
def runs(place):
    return read_runs([place / "pairs", place / "paper"])


@pytest.fixture(scope="module")
def judged(runs):
    subject = Subjects(None, 0, pytest.fail).of(runs[0])
    distances = (("Euclid", None, Euclidean()), ("pairs", 0, runs[0].metric))
    return [Judged(name, run, subject, measure(one, subject, k=3, seed=0), 0) for name, run, one in distances]


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=3000))
def test_a_thinned_line_keeps_its_ends_and_its_extremes(values):
    x, y = thinned(np.arange(len(values)), values, most=100)
    assert len(x) <= 102
    assert (x[0], x[-1]) == (0, len(values) - 1)
    assert (y.min(), y.max()) == (min(values), max(values))
    assert (np.diff(x) > 0).all()
    assert (np.asarray(values)[x.astype(int)] == y).all()


def test_what_is_no_number_is_none():
    assert numbers([1 / 3, np.nan, -np.inf, 0, 123456.7]) == [0.33333, None, None, 0.0, 123460.0]


@given(st.integers(0, 10**9))
def test_a_staleness_is_in_the_range_of_its_bin(value):
    low, high = staleness_of_bin(staleness_bin(value))
    assert low <= value
    assert high is None or value <= high
    assert staleness_bin(low) == staleness_bin(value) <= 31


def test_bins_of_staleness_follow_each_other():
    ranges = [staleness_of_bin(place) for place in range(32)]
    assert ranges[:17] == [*((i, i) for i in range(16)), (16, 31)]
    assert all(before[1] + 1 == after[0] for before, after in pairwise(ranges))


def test_no_two_runs_look_alike():
    looks = {(run_style(run)["colour"], run_style(run)["dash"]) for run in range(32)}
    assert len(looks) == 32


def test_curves_of_training_hold_the_history(runs):
    figures = {figure.name: figure for figure in (*history_figures(runs), *server_figures(runs))}
    assert figures.keys() == {
        "objective-steps", "objective-seconds", "ap-steps", "ap-seconds", "staleness", "workers", "bytes", "queue"
    }  # fmt: skip
    for run, trace in zip(runs, figures["objective-steps"].traces, strict=True):
        assert trace["x"] == [report.step for report in run.reports]
        np.testing.assert_allclose(trace["y"], [report.objective for report in run.reports], rtol=1e-4)
    for figure in figures.values():
        assert figure.table is not None
        assert figure.table.rows
        json.loads(to_json({"data": figure.traces, "layout": figure.layout}))


def test_shares_of_staleness_add_up(runs):
    for trace in staleness(runs).traces:
        assert sum(trace["y"]) == pytest.approx(100, abs=0.01)


def test_many_workers_become_three_lines(runs):
    run = runs[0]
    many = [
        type(report)(**{
            **report.to_json(),
            "workers": [{"worker": i, "steps": 1, "steps_per_second": float(i)} for i in range(20)],
        })
        for report in run.reports
    ]  # fmt: skip
    figure = worker_speeds([type(run)(**{**vars(run), "reports": many})])
    assert [trace["y"][-1] for trace in figure.traces] == [19.0, 9.5, 0.0]


@pytest.mark.parametrize("shape", [(5, 12), (12, 5)])
def test_the_spectrum_is_that_of_m(shape):
    metric = Metric(np.random.default_rng(0).normal(size=shape))
    expected = np.linalg.eigvalsh(metric.matrix())[::-1][:5]
    np.testing.assert_allclose(spectrum(metric), expected, rtol=1e-6)


def test_a_map_shows_principal_components(judged):
    for one in judged:
        point_map, points = one.measured.map, one.subject.asked.points
        projected = (Euclidean() if one.run is None else runs_metric(one)).projected(points, point_map.rows)
        expected = PCA(2, svd_solver="full").fit(projected.astype(float))
        found = point_map.places
        np.testing.assert_allclose(np.abs(found), np.abs(expected.transform(projected)), rtol=1e-3, atol=1e-3)
        assert point_map.share == pytest.approx(expected.explained_variance_ratio_.sum(), rel=1e-4)


def runs_metric(one):
    return read_runs([one.subject.asked.folder.parent / "pairs"])[0].metric


def test_curves_of_pairs_hold_the_areas_that_the_summary_tells(judged):
    for figure, area in ((precision_recall_figure(judged), "average_precision"), (roc_figure(judged), "roc_auc")):
        for one, trace in zip(judged, figure.traces, strict=True):
            told = getattr(one.measured.summary.verification, area)
            assert np.trapezoid(trace["y"], trace["x"]) == pytest.approx(told, abs=0.01)
            assert f"{one.name} {told:.4f}" in figure.caption


def test_histograms_count_every_pair(judged):
    for one in judged:
        figure = histogram_figure(one)
        assert [trace["name"] for trace in figure.traces] == ["similar", "dissimilar"]
        for trace in figure.traces:
            assert sum(trace["y"]) == pytest.approx(100, abs=0.05)
    assert figure.layout["shapes"][0]["x0"] == judged[1].measured.threshold


def test_a_map_colours_points_by_their_class(judged):
    figure = map_figure(judged[1])
    assert [trace["name"] for trace in figure.traces] == [str(digit) for digit in range(10)]
    labels, ids = judged[1].subject.asked.labels, judged[1].subject.asked.ids
    for trace in figure.traces:
        rows = [ids.tolist().index(int(name)) for name in trace["text"]]
        assert {str(labels[row]) for row in rows} == {trace["name"]}
    assert len({(trace["marker"]["color"], trace["marker"]["symbol"]) for trace in figure.traces}) == 10


@pytest.mark.parametrize("shape", [(7, 5), (6, 4, 3)])
def test_png_files_hold_the_pixels(shape):
    pixels = np.random.default_rng(0).integers(0, 256, shape, np.uint8)
    read = matplotlib.image.imread(io.BytesIO(png(pixels)))
    np.testing.assert_array_equal((read * 255).round().astype(np.uint8), pixels)


def test_points_are_shown_as_what_they_are(digits):
    pictures, rows = as_points(digits[0]), np.array([3, 1])
    assert all(html.startswith("<img ") for html in Looks.of(pictures, None, None).show(pictures, rows, ["a", "<b>"]))
    assert 'alt="&lt;b&gt;"' in Looks.of(pictures, None, None).show(pictures, rows, ["a", "<b>"])[1]
    fractions = as_points(digits[0] / 7)
    assert Looks.of(fractions, None, None).shape is None
    assert Looks.of(fractions, (4, 16), None).shape == (4, 16)
    text = as_points(sp.csr_matrix([[0, 3.0, 0, 5.0], [1.0, 0, 0, 0]]))
    shown = Looks.of(text, None, ["a", "b<", "c", "d"]).show(text, np.array([0, 1]), ["x", "y"])
    assert "d · b&lt;" in shown[0]
    assert shown[1].endswith(">a</span>")


@pytest.mark.parametrize("text", ["28", "0x3", "28x28x2", "axb", "-1x3", ""])
def test_image_shapes_that_are_none(text):
    with pytest.raises(InvalidSettings, match="expected HEIGHTxWIDTH"):
        image_shape(text)


def test_shapes_and_names_have_to_fit_the_points(digits):
    points = as_points(digits[0])
    with pytest.raises(InvalidSettings, match="has 63 values, but points have 64"):
        Looks.of(points, (9, 7), None)
    with pytest.raises(InvalidSettings, match="2 feature names, but points have 64"):
        Looks.of(points, None, ["a", "b"])
