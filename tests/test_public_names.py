"""What ``import nearfar`` promises."""

import subprocess
import sys

import nearfar as nf


def test_every_exported_name_is_there_and_documented():
    assert sorted(nf.__all__) == nf.__all__
    for name in nf.__all__:
        assert getattr(nf, name).__doc__, name


def test_importing_it_is_light():
    heavy = "matplotlib torch ray faiss onnx plotly"  # not pandas: scikit-learn imports it where it is installed
    script = f"import sys, nearfar; sys.exit(any(name in sys.modules for name in '{heavy}'.split()))"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
