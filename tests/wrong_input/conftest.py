"""Input that is right, for all tests of this folder."""

import numpy as np
import pytest

from tests.commands import nearfar
from tests.wrong_input.making import TRAINING, Good, N, blobs, write_rows


@pytest.fixture(scope="session")
def good(tmp_path_factory: pytest.TempPathFactory) -> Good:
    folder = tmp_path_factory.mktemp("good")
    y = np.arange(N) % 3
    X = blobs(y)
    np.savez(folder / "labelled.npz", X=X, y=y)
    np.savez(folder / "other.npz", X=X + 1, y=y)
    np.savez(folder / "wide.npz", X=np.hstack([X, X]), y=y)
    np.save(folder / "points.npy", X)
    np.savez(folder / "one-class.npz", X=X, y=np.zeros(N, int))
    np.savez(folder / "singletons.npz", X=X, y=np.arange(N))
    write_rows(folder / "pairs.csv", [(i, (i + 3) % N, 1) for i in range(N)] + [(i, (i + 1) % N, -1) for i in range(N)])
    write_rows(folder / "similar.csv", [(i, (i + 3) % N) for i in range(N)])
    write_rows(folder / "triplets.csv", [(i, (i + 3) % N, (i + 1) % N) for i in range(N)])
    for name in ("labelled", "other", "wide", "one-class", "singletons"):
        nearfar("ingest", folder / f"{name}.npz", "--out", folder / name)
    for name, option, file in (
        ("paired", "--pairs", "pairs.csv"),
        ("only-similar", "--similar", "similar.csv"),
        ("compared", "--triplets", "triplets.csv"),
    ):
        nearfar("ingest", folder / "points.npy", option, folder / file, "--out", folder / name)
    nearfar("ingest", folder / "points.npy", "--out", folder / "bare")
    nearfar(
        "train",
        folder / "labelled",
        "--out",
        folder / "run",
        *TRAINING,
        "--checkpoint-every",
        "1e-9",
        "--report-every",
        "5",
    )
    return Good(folder)
