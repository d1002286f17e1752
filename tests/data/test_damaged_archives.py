"""An archive that is damaged, anywhere, is said to be: no other error comes of it."""

import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from nearfar.data.formats import read_blocks, read_points
from nearfar.errors import InvalidFile, InvalidInput
from nearfar.experiments.obtaining import obtain_mnist

POINTS = np.arange(24, dtype=np.float32).reshape(6, 4)
IMAGES = {
    "x_train": np.arange(180, dtype=np.uint8).reshape(20, 9),
    "y_train": np.arange(20) % 3,
    "x_test": np.arange(90, dtype=np.uint8).reshape(10, 9),
    "y_test": np.arange(10) % 3,
}


def written(place: Path, old: bytes, new: bytes, order: str) -> Path:
    """An uncompressed archive of an array with some bytes replaced, whose checksum is right all the same."""
    np.save(place / "X.npy", np.array(POINTS, order=order))
    whole = (place / "X.npy").read_bytes()
    assert old in whole
    with zipfile.ZipFile(place / "a.npz", "w") as archive:
        archive.writestr("X.npy", whole.replace(old, new.ljust(len(old)), 1))
    return place / "a.npz"


WRONG_HEADERS = {
    "no closing brace": (b"(6, 4), }", b"(6, 4),  "),
    "an open bracket": (b"(6, 4), }", b"(6, 4   }"),
    "no type": (b"'<f4'", b"'<q9'"),
    "no such key": (b"'shape'", b"'shaqe'"),
    "less than nothing": (b"(6, 4), }", b"(-6,4), }"),
    "more than there is": (b"(6, 4), }", b"(6,40), }"),
    "more than can be": (b"(6, 4), }              ", b"(6, 999999999999999), }"),
    "less than nothing, twice": (b"(6, 4), }", b"(-6,-4),}"),
}


@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("name", WRONG_HEADERS)
def test_a_damaged_header_is_said_to_be(tmp_path: Path, name: str, order: str) -> None:
    with pytest.raises(InvalidFile, match=r"array 'X' of \S*a\.npz is damaged: "):
        read_points(written(tmp_path, *WRONG_HEADERS[name], order))


@pytest.mark.filterwarnings("ignore")  # what Python says of the literal in a header
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("order", ["C", "F"])
def test_any_flipped_byte_is_read_past_or_said(tmp_path: Path, save, order: str) -> None:
    save(tmp_path / "whole.npz", X=np.array(POINTS, order=order), y=np.arange(6))
    whole = (tmp_path / "whole.npz").read_bytes()
    path = tmp_path / "a.npz"
    for place in range(len(whole)):
        for flip in (1, 0x20, 0xFF):
            path.write_bytes(whole[:place] + bytes([whole[place] ^ flip]) + whole[place + 1 :])
            try:
                for block in read_blocks(path):
                    assert block.points.shape[1]
            except InvalidInput:
                pass


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_any_flipped_byte_of_images_is_read_past_or_said(tmp_path: Path, save) -> None:
    save(tmp_path / "whole.npz", **IMAGES)
    whole, path = (tmp_path / "whole.npz").read_bytes(), tmp_path / "a.npz"
    told = 0
    for place in range(0, len(whole), 2):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            obtain_mnist(tmp_path / "kept", path)
        except InvalidInput:
            told += 1
    assert told > len(whole) / 8


def test_encrypted_images_are_said_to_be_unreadable(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", **IMAGES)
    whole = bytearray((tmp_path / "a.npz").read_bytes())
    with zipfile.ZipFile(tmp_path / "a.npz") as archive:
        begins = [member.header_offset for member in archive.infolist()]
    central = [place for place in range(len(whole)) if whole[place : place + 4] == b"PK\x01\x02"]
    for flag in [*(place + 6 for place in begins), *(place + 8 for place in central)]:
        struct.pack_into("<H", whole, flag, 1)
    (tmp_path / "a.npz").write_bytes(whole)
    with pytest.raises(InvalidFile, match=r"a\.npz is no readable \.npz file"):
        obtain_mnist(tmp_path / "kept", tmp_path / "a.npz")
