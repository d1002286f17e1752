"""benchmarks/RESULTS.md: a section for each benchmark, with the lines of its last full run and what it ran on."""

import os
import platform
import re
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

_INTRODUCTION = """# Results

What the benchmarks last printed in full (`make bench`, or `python -m benchmarks NAME`); `load` is the machine's load
average then.
"""
_SECTION = re.compile(r"^## (?P<name>[^\n]+)\n(?P<text>.*?)(?=^## |\Z)", re.MULTILINE | re.DOTALL)


def record(page: Path, name: str, lines: Sequence[str], order: Sequence[str]) -> None:
    """Put the lines of a benchmark in place of those of its last run; sections are in this order."""
    sections = {found["name"]: found["text"].strip() for found in _SECTION.finditer(_text(page))}
    sections[name] = "\n".join([f"{_machine()}\n", "```", *lines, "```"])
    kept = [f"## {one}\n\n{sections[one]}\n" for one in order if one in sections]
    page.write_text("\n".join([_INTRODUCTION, *kept]))


def _text(page: Path) -> str:
    return page.read_text() if page.exists() else ""


def _machine() -> str:
    blas = {f"{i['internal_api']} {i['version']} ({i.get('architecture')})" for i in threadpool_info()}
    return (
        f"{time.strftime('%Y-%m-%d')}, {os.cpu_count()} cores, {platform.machine()}, Python "
        f"{platform.python_version()}, NumPy {np.__version__}, {', '.join(sorted(blas))}."
    )
