"""Files that are either complete or absent. Nothing else writes any.

Everything is written under a temporary name in the same folder, flushed to the disk and renamed, so a reader, or a
process that comes back after a kill, sees the whole file or none. Arrays are written in slices, never copied whole.
"""

from nearfar.files.atomic import (
    atomic_file,
    atomic_folder,
    check_free,
    hidden_folder,
    locked,
    make_folder,
    open_file,
    read_json,
    remove_unfinished,
    write_json,
    write_text,
)
from nearfar.files.damage import DAMAGED, damage
from nearfar.files.npy import NpyAppender, atomic_npy, growing_npy, read_npy
from nearfar.files.tensors import CHECKSUM, Transposed, read_safetensors, write_safetensors

__all__ = [
    "CHECKSUM",
    "DAMAGED",
    "NpyAppender",
    "Transposed",
    "atomic_file",
    "atomic_folder",
    "atomic_npy",
    "check_free",
    "damage",
    "growing_npy",
    "hidden_folder",
    "locked",
    "make_folder",
    "open_file",
    "read_json",
    "read_npy",
    "read_safetensors",
    "remove_unfinished",
    "write_json",
    "write_safetensors",
    "write_text",
]
