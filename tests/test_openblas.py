"""OpenBLAS is asked for the loops that the processor can run, and nobody's own choice is overruled."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nearfar.openblas import core_type

CPUINFO = Path("/proc/cpuinfo")
AVX512 = "avx512f avx512dq avx512cd avx512bw avx512vl"
ARCHITECTURES = """
import {first}
import nearfar
from threadpoolctl import threadpool_info
print(*[library["architecture"] for library in threadpool_info() if library["internal_api"] == "openblas"])
"""


def described(vendor: str, flags: str) -> str:
    """Two processors, as Linux describes them."""
    return f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu sse2 {flags} avx2\n\n" * 2


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        (described("AuthenticAMD", AVX512), "SkylakeX"),
        (described("AuthenticAMD", ""), None),
        (described("AuthenticAMD", AVX512.replace(" avx512vl", "")), None),
        (described("GenuineIntel", AVX512), None),  # by whose names OpenBLAS chooses well
        ("processor\t: 0\nFeatures\t: fp asimd\n", None),
        ("", None),
    ],
)
def test_amd_processors_with_all_of_avx512_are_asked_for(cpuinfo: str, expected: str | None) -> None:
    assert core_type(cpuinfo) == expected


def chosen(first: str, asked: str | None) -> set[str]:
    """The loops that OpenBLAS has in a process that imports this module first; nothing if it is not there."""
    environment = {name: value for name, value in os.environ.items() if name != "OPENBLAS_CORETYPE"}
    environment |= {"OPENBLAS_CORETYPE": asked} if asked else {}
    command = [sys.executable, "-c", ARCHITECTURES.format(first=first)]
    printed = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return set(printed.split())


@pytest.mark.skipif(
    not CPUINFO.exists() or core_type(CPUINFO.read_text()) is None, reason="not an AMD processor with AVX-512"
)
def test_numpy_has_the_loops_that_were_asked_for() -> None:
    assert chosen("sys", None) <= {"SkylakeX"}
    assert chosen("sys", "Haswell") <= {"Haswell"}
    assert chosen("numpy", "Haswell") <= {"Haswell"}
