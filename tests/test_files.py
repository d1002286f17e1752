"""Files are complete or absent, whatever happens while they are written."""

import errno
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import safetensors.numpy

from nearfar import files
from nearfar.errors import InvalidFile


def write_half(path: Path) -> None:
    with files.atomic_file(path) as file:
        file.write(b"half")
        raise KeyboardInterrupt


def fill_half(path: Path) -> None:
    with files.atomic_folder(path) as folder:
        (folder / "inside").write_bytes(b"half")
        raise KeyboardInterrupt


@pytest.mark.parametrize("interrupted", [write_half, fill_half])
def test_an_error_in_the_block_leaves_nothing(tmp_path: Path, interrupted) -> None:
    with pytest.raises(KeyboardInterrupt):
        interrupted(tmp_path / "whole")
    assert list(tmp_path.iterdir()) == []


def test_an_error_in_the_block_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "file"
    files.write_text(path, "old")
    with pytest.raises(KeyboardInterrupt):
        write_half(path)
    assert path.read_text() == "old"


WRITING = (
    "import os, signal, sys; from pathlib import Path; from nearfar import files\n"
    "with files.{manager}(Path(sys.argv[1])) as opened:\n"
    "    opened = opened if hasattr(opened, 'write') else (opened / 'inside').open('wb')\n"
    "    opened.write(b'all of it'); opened.flush(); {then}\n"
)


def writing(manager: str, path: Path, then: str) -> subprocess.Popen[str]:
    """A process that writes to ``path``, and then does this before the block ends."""
    environment = {**os.environ, "PYTHONPATH": str(Path(files.__file__).parents[2])}
    command = [sys.executable, "-c", WRITING.format(manager=manager, then=then), str(path)]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def write_whole(manager: str, path: Path) -> None:
    with getattr(files, manager)(path):
        pass


@pytest.mark.parametrize("manager", ["atomic_file", "atomic_folder"])
def test_a_killed_process_leaves_no_complete_looking_file_and_the_next_one_removes_what_it_left(
    tmp_path: Path, manager: str
) -> None:
    """Killed after all is written, but before the block ends: the name must not be there."""
    with writing(manager, tmp_path / "whole", "os.kill(os.getpid(), signal.SIGKILL)") as killed:
        assert killed.wait() == -signal.SIGKILL
    remains = [path.name for path in tmp_path.iterdir()]
    assert remains
    assert all(name.endswith(".partial") for name in remains)
    write_whole(manager, tmp_path / "whole.npy")
    assert {path.name for path in tmp_path.iterdir()} == {*remains, "whole.npy"}, "not of the same name"
    write_whole(manager, tmp_path / "whole")
    assert {path.name for path in tmp_path.iterdir()} == {"whole", "whole.npy"}


@pytest.mark.parametrize("manager", ["atomic_file", "atomic_folder"])
def test_what_a_living_process_is_writing_is_not_removed(tmp_path: Path, manager: str) -> None:
    with writing(manager, tmp_path / "whole", "print('written', flush=True); input()") as other:
        assert other.stdout is not None
        assert other.stdout.readline() == "written\n"
        (partial,) = tmp_path.iterdir()
        write_whole(manager, tmp_path / "whole")
        assert partial.exists()
        other.kill()


def test_resuming_beside_a_living_run_leaves_what_that_is_writing(tmp_path: Path) -> None:
    with writing("atomic_file", tmp_path / "killed", "os.kill(os.getpid(), signal.SIGKILL)") as killed:
        assert killed.wait() == -signal.SIGKILL
    (abandoned,) = tmp_path.iterdir()
    other = writing("atomic_file", tmp_path / "living", "print('written', flush=True); input()")
    try:
        assert other.stdout is not None
        assert other.stdout.readline() == "written\n"
        files.remove_unfinished(tmp_path)
        assert not abandoned.exists()
        assert other.communicate("\n", timeout=60)
    finally:
        other.kill()
    assert [path.name for path in tmp_path.iterdir()] == ["living"]


def test_an_error_of_reading_is_not_said_to_be_one_of_writing(tmp_path: Path) -> None:
    for manager in (files.atomic_file, files.atomic_folder):
        with pytest.raises(InvalidFile, match=r"^\S*/source: No such file or directory"), manager(tmp_path / "out"):
            (tmp_path / "source").read_bytes()
    with (
        pytest.raises(InvalidFile, match=r"^cannot write \S*/out: Is a directory"),
        files.atomic_folder(tmp_path / "out") as folder,
    ):
        folder.read_bytes()
    with pytest.raises(InvalidFile, match=r"^cannot write \S*/out: odd$"), files.atomic_file(tmp_path / "out"):
        raise OSError("odd")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(("umask", "modes"), [(0o022, (0o644, 0o755)), (0o077, (0o600, 0o700)), (0, (0o644, 0o755))])
def test_modes_honour_the_umask_and_nothing_depends_on_chmod(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, umask: int, modes: tuple[int, int]
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    for module, name in ((Path, "chmod"), (os, "chmod"), (os, "fchmod")):
        monkeypatch.setattr(module, name, refused)
    before = os.umask(umask)
    try:
        write_whole("atomic_file", tmp_path / "file")
        write_whole("atomic_folder", tmp_path / "folder")
    finally:
        os.umask(before)
    assert tuple((tmp_path / name).stat().st_mode & 0o777 for name in ("file", "folder")) == modes


def test_a_folder_that_exists_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(InvalidFile, match="exists already"), files.atomic_folder(tmp_path):
        pass


@pytest.mark.parametrize("manager", [files.atomic_file, files.atomic_folder])
def test_a_missing_parent_is_said(tmp_path: Path, manager) -> None:
    with pytest.raises(InvalidFile, match=r"cannot write .*choose a folder that exists"):
        manager(tmp_path / "no" / "where").__enter__()


TENSORS = {
    "odd bytes first": np.arange(3, dtype=np.uint8),
    "matrix": np.arange(12, dtype=np.float32).reshape(3, 4),
    "strided": np.arange(20, dtype=np.float64).reshape(4, 5)[::2, 1:4],
    "other byte order": np.arange(5, dtype=">f4"),
    "empty": np.empty((0, 4), np.int64),
    "scalar": np.array(7, np.int32),
}


def test_safetensors_are_read_by_the_safetensors_package(tmp_path: Path) -> None:
    path = tmp_path / "tensors.safetensors"
    files.write_safetensors(path, TENSORS, {"settings": "λ = 1"})
    theirs = safetensors.numpy.load_file(path)
    ours, metadata = files.read_safetensors(path, verify=True)
    assert metadata["settings"] == "λ = 1"
    assert theirs.keys() == ours.keys() == TENSORS.keys()
    for name, tensor in TENSORS.items():
        np.testing.assert_array_equal(theirs[name], tensor)
        np.testing.assert_array_equal(ours[name], tensor)


def test_transposed_is_the_transpose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files.tensors, "_SLICE_BYTES", 64)  # several slices
    array = np.random.default_rng(0).standard_normal((31, 7)).astype(np.float32)
    files.write_safetensors(tmp_path / "t", {"components": files.Transposed(array)}, {})
    tensors, _ = files.read_safetensors(tmp_path / "t", verify=True)
    np.testing.assert_array_equal(tensors["components"], array.T)


def test_the_checksum_finds_any_flipped_byte_of_the_tensors(tmp_path: Path) -> None:
    path = tmp_path / "tensors"
    files.write_safetensors(path, {"a": np.arange(6, dtype=np.float32), "b": np.arange(2)}, {})
    whole = path.read_bytes()
    start = 8 + int.from_bytes(whole[:8], "little")
    assert len(whole) - start == 40
    for place in range(start, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(InvalidFile, match="damaged"):
            files.read_safetensors(path, verify=True)


def test_where_there_is_no_room_for_tensors_it_is_said_and_nothing_is_left(tmp_path: Path) -> None:
    """A limit of the process on the size of its files stands for a full disk."""
    code = (
        "import resource, sys, threading; from pathlib import Path; import numpy as np\n"
        "from nearfar import files; from nearfar.errors import InvalidFile\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (20 << 20, resource.RLIM_INFINITY))\n"
        "try:\n"
        "    files.write_safetensors(Path(sys.argv[1]), {'L': np.ones((40, 1 << 18), np.float32)}, {})\n"
        "except InvalidFile as error:\n"
        "    print(error, threading.active_count())\n"
    )
    run = [sys.executable, "-c", code, str(tmp_path / "metric")]
    ended = subprocess.run(run, capture_output=True, text=True, check=True)
    assert ended.stdout.startswith(f"cannot write {tmp_path / 'metric'}: ")
    assert ended.stdout.endswith(" 1\n")
    assert list(tmp_path.iterdir()) == []


def test_metadata_that_looks_like_a_checksum_to_be_filled_in_is_kept(tmp_path: Path) -> None:
    metadata = {"zeros": "0" * 64, files.CHECKSUM: "of an earlier file"}
    files.write_safetensors(tmp_path / "t", {"a": np.ones(2, np.float32)}, metadata)
    _, read = files.read_safetensors(tmp_path / "t", verify=True)
    assert read["zeros"] == "0" * 64


@pytest.mark.parametrize("length", [0, 4, 30, -1])
def test_a_truncated_safetensors_file_is_said(tmp_path: Path, length: int) -> None:
    path = tmp_path / "t"
    files.write_safetensors(path, {"a": np.ones(20, np.float32)}, {})
    path.write_bytes(path.read_bytes()[:length])
    with pytest.raises(InvalidFile, match="not a complete safetensors file"):
        files.read_safetensors(path)


def test_appended_rows_are_read_by_numpy(tmp_path: Path) -> None:
    blocks = [np.arange(6).reshape(2, 3), np.empty((0, 3)), np.arange(9).reshape(3, 3).T]
    path = tmp_path / "rows.npy"
    with files.atomic_file(path) as file:
        appender = files.NpyAppender(file, np.dtype(np.int16), (3,))
        for block in blocks:
            appender.append(block)
        appender.close()
    read = np.load(path)
    assert read.dtype == np.int16
    np.testing.assert_array_equal(read, np.concatenate(blocks))


@pytest.mark.parametrize(
    ("old", "new", "shift"),
    [("u1", "f4", 0), ("i4", "u2", -1), ("u2", "i2", 0), ("i8", "U21", 0), ("U2", "U7", 0), ("u2", "u2", 0)],
)
def test_appended_rows_can_be_retyped_under_way(tmp_path: Path, monkeypatch, old: str, new: str, shift: int) -> None:
    monkeypatch.setattr(files.npy, "_SLICE_BYTES", 64)
    first, second = np.arange(1, 100).astype(old), np.arange(5).astype(new)
    with files.atomic_npy(tmp_path / "rows.npy", old) as appender:
        appender.append(first)
        appender.retype(new, shift)
        np.testing.assert_array_equal(appender.mapped(), (np.arange(1, 100) + shift).astype(new))
        appender.append(second)
    read = np.load(tmp_path / "rows.npy")
    assert read.dtype == np.dtype(new)
    np.testing.assert_array_equal(read, np.concatenate(((np.arange(1, 100) + shift).astype(new), second)))


@pytest.mark.parametrize(
    "array",
    [
        np.arange(12, dtype=np.float32).reshape(3, 4),
        np.asfortranarray(np.arange(12).reshape(3, 4)),
        np.arange(4, dtype=">i4"),
        np.array(["near", "fär"]),
        np.empty((0, 2), np.int32),
        np.array(3.5),
    ],
    ids=lambda array: f"{array.dtype.str}{array.shape}",
)
@pytest.mark.parametrize("mapped", [True, False])
def test_what_numpy_saved_is_read(tmp_path: Path, array: np.ndarray, mapped: bool) -> None:
    path = tmp_path / "array.npy"
    np.save(path, array)
    read = files.read_npy(path, mapped=mapped)
    assert read.dtype == array.dtype
    np.testing.assert_array_equal(read, array)
    assert read.flags.writeable != mapped


def _whole_npy() -> bytes:
    header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }"
    return b"\x93NUMPY\x01\x00" + (118).to_bytes(2, "little") + header.ljust(117) + b"\n" + bytes(48)


DAMAGED_NPY = {
    "empty": b"",
    "only the magic": _whole_npy()[:6],
    "half a header": _whole_npy()[:40],
    "half the data": _whole_npy()[:-20],
    "a zip": b"PK\x03\x04 not really",
    "text": b"1 2 3\n",
    "no closing brace": _whole_npy().replace(b"}", b" "),
    "a shape beyond any file": _whole_npy().replace(b"(3, 4), }" + b" " * 16, b"(30000000000000000, 400)}"),
    "a pickle": pickle.dumps({"a": 1}),
}


def test_the_undamaged_bytes_are_fine(tmp_path: Path) -> None:
    (tmp_path / "a.npy").write_bytes(_whole_npy())
    assert files.read_npy(tmp_path / "a.npy").shape == (3, 4)


@pytest.mark.parametrize("content", DAMAGED_NPY.values(), ids=DAMAGED_NPY.keys())
def test_a_damaged_npy_is_said(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.npy"
    path.write_bytes(content)
    with pytest.raises(InvalidFile, match=r"a\.npy is not a complete \.npy file") as error:
        files.read_npy(path)
    assert "\n" not in str(error.value)


class Trap:
    """Makes a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return os.mkdir, (str(self.folder),)


@pytest.mark.parametrize("mapped", [True, False])
def test_reading_never_unpickles(tmp_path: Path, mapped: bool) -> None:
    trapped = tmp_path / "trapped"
    np.save(tmp_path / "objects.npy", np.array([Trap(trapped)], object), allow_pickle=True)
    with pytest.raises(InvalidFile):
        files.read_npy(tmp_path / "objects.npy", mapped=mapped)
    assert not trapped.exists()


def test_json_that_is_none_is_said(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    with pytest.raises(InvalidFile, match="missing"):
        files.read_json(path)
    for content in (b"{", b"[1]", b"\xff\xfe\x00"):
        path.write_bytes(content)
        with pytest.raises(InvalidFile, match=r"a\.json"):
            files.read_json(path)
    files.write_json(path, {"a": [1, 2]})
    assert files.read_json(path) == {"a": [1, 2]}
