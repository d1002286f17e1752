"""benchmarks/RESULTS.md: a section for each benchmark, with tables of its last full run and what it ran on."""

import os
import platform
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from threadpoolctl import threadpool_info

from nearfar.objective.vectors import HAS_AVX512

_INTRODUCTION = """# Results

The figures of each benchmark's last full run (`make bench`, or `python -m benchmarks NAME`, which prints them as JSON);
`load` is the machine's load average then.
"""
_SECTION = re.compile(r"^## (?P<name>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


Figures = Mapping[str, Any]
"""What one line of a benchmark says, by name."""


def record(page: Path, name: str, lines: Sequence[Figures], order: Sequence[str]) -> None:
    """Put the figures of a benchmark in place of those of its last run; sections are in this order."""
    sections = {found["name"]: found["text"].strip() for found in _SECTION.finditer(_text(page))}
    sections[name] = "\n\n".join([_machine(), *_tables(lines)])
    kept = [f"## {one}\n\n{sections[one]}\n" for one in order if one in sections]
    page.write_text("\n".join([_INTRODUCTION, *kept]))


def _tables(lines: Sequence[Figures]) -> Iterator[str]:
    """A table for each run of lines that say the same things; of lines and names, the fewer are its columns."""
    for names, alike in groupby(lines, key=tuple):
        table = [[name.replace("_", " ") for name in names], *(list(map(_cell, line.values())) for line in alike)]
        if len(table[0]) >= len(table):
            table = [list(row) for row in zip(*table, strict=True)]
        first, *rest = table
        rows = [first, ["---"] * len(first), *rest]
        yield "\n".join(f"| {' | '.join(row)} |" for row in rows)


def _cell(value: Any) -> str:
    """A figure, or several: pairs of numbers in a list, as of a curve, are ``x: y``."""
    if value is None:
        return "–"
    if isinstance(value, Mapping):
        return "; ".join(f"{name.replace('_', ' ')}: {_cell(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(f"{_cell(one[0])}: {_cell(one[1])}" if isinstance(one, list) else _cell(one) for one in value)
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return str(value).replace("|", "\\|")


def _text(page: Path) -> str:
    return page.read_text() if page.exists() else ""


def _machine() -> str:
    libraries = [info for info in threadpool_info() if info["user_api"] == "blas"]
    blas = {f"{info['internal_api']} {info['version']} ({info.get('architecture')})" for info in libraries}
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {_processor()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, {', '.join(sorted(blas))}."
    )


def _processor() -> str:
    """Its name where the system tells, and whether it has AVX-512, as sparse products differ by that."""
    information = Path("/proc/cpuinfo")
    found = re.search(r"^model name\s*: (.+)$", _text(information), re.MULTILINE)
    return f"{found[1] if found else platform.machine()}{', AVX-512' if HAS_AVX512 else ''}"
