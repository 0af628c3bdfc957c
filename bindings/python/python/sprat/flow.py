"""The file mover: fetches a file from a server at any distance, and verifies all of it.

>>> import sprat.flow
>>> outcome = sprat.flow.copy("sprat://left.example/big.iso", "/srv/big.iso")  # doctest: +SKIP
>>> outcome.verified, outcome.blake3  # doctest: +SKIP
"""

from sprat._sprat import (
    Changed,
    Corrupt,
    Denied,
    DestinationError,
    Error,
    Exists,
    NotFound,
    Outcome,
    Progress,
    ProtocolError,
    Unreachable,
    Untrusted,
    UsageError,
    copy,
)

__all__ = [
    "Changed",
    "Corrupt",
    "Denied",
    "DestinationError",
    "Error",
    "Exists",
    "NotFound",
    "Outcome",
    "Progress",
    "ProtocolError",
    "Unreachable",
    "Untrusted",
    "UsageError",
    "copy",
]
