"""What damaged files raise when NumPy, SciPy and zipfile read them."""

import struct
import tokenize
import zipfile
import zlib
from lzma import LZMAError

DAMAGED = (
    OSError,
    EOFError,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    SyntaxError,
    tokenize.TokenError,
    RuntimeError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
    LZMAError,
)
"""An array's header is a Python literal, so also what parsing one raises; RuntimeError is for encrypted archives."""


def damage(error: Exception) -> str:
    """What an error says, in one line."""
    return str(error).splitlines()[0] if str(error) else type(error).__name__
