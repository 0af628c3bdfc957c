"""Sprat for Python. What there is so far is the mover: :mod:`sprat.flow`."""

from sprat._sprat import __version__

__all__ = ["__version__"]
