"""Sprat for Python. The mover: :mod:`sprat.flow`; kernels on arrays: :mod:`sprat.grape`, with NumPy."""

from sprat._sprat import __version__

__all__ = ["__version__"]
