import os
from collections.abc import Callable, Sequence
from typing import Final, Optional, Union

class Error(Exception):
    """A copy failed. The destination is unchanged: it still has its earlier file, or none."""

class UsageError(Error):
    """The arguments are invalid."""

class NotFound(Error):
    """The source has no such file."""

class Denied(Error):
    """The source denies access to the file."""

class Unreachable(Error):
    """The source cannot be reached, or stopped answering. The same call, made again, continues the
    copy."""

class Untrusted(Error):
    """The source's certificate is not trusted."""

class ProtocolError(Error):
    """The source violates HTTP, or contradicts what it sent before."""

class Changed(Error):
    """The file changed repeatedly while it was fetched."""

class Corrupt(Error):
    """Bytes arrived damaged, or the file does not have the given hash."""

class Exists(Error):
    """The destination exists, and differs from the source."""

class DestinationError(Error):
    """The destination, or a file named in the arguments, cannot be written or read."""

class Progress:
    """The progress of a copy."""

    done: Final[int]
    """Bytes of the file that are complete, and verified where that is possible."""
    received: Final[int]
    """Bytes of `done` that this call received; an earlier call received the other bytes."""
    length: Final[Optional[int]]
    """Length of the file, bytes, if known."""
    rtt: Final[float]
    """Round-trip time of some stream, measured last, seconds; 0 if unknown."""
    retries: Final[int]
    """Connections that failed and were tried again."""
    wrong: Final[int]
    """Groups of 1 MiB that arrived damaged, and were fetched again."""

class Outcome:
    """The result of a copy."""

    target: Final[str]
    """Path of the destination file."""
    length: Final[int]
    """Length of the file, bytes."""
    blake3: Final[Optional[str]]
    """BLAKE3 hash of the file, hexadecimal. None if the file existed already and the call gave
    neither `blake3` nor `sha256`."""
    verified: Final[bool]
    """Whether all groups were verified by the source's hashes, or the file by a given hash."""
    unchanged: Final[bool]
    """Whether the file existed already, with the source's length and time, and was not copied."""
    sources: Final[list[tuple[str, int]]]
    """Bytes received from each host. The first host is the one whose version of the file was
    copied. Empty if nothing was copied."""
    progress: Final[Progress]
    """The progress at the end."""
    seconds: Final[float]
    """Duration of the copy."""

def copy(
    source: str,
    target: Union[str, os.PathLike[str]],
    *,
    hosts: Sequence[str] = ...,
    streams: int = 1,
    verify: bool = True,
    force: bool = False,
    restart: bool = False,
    check: bool = False,
    preserve: bool = False,
    limit: Union[int, str, None] = None,
    token: Optional[str] = None,
    blake3: Optional[str] = None,
    sha256: Optional[str] = None,
    cacert: Union[str, os.PathLike[str], None] = None,
    insecure: bool = False,
    retries: int = 10,
    timeout: Union[float, str] = 60,
    receive_buffer: Union[int, str, None] = None,
    progress: Optional[Callable[[Progress], object]] = None,
    notice: Optional[Callable[[str], object]] = None,
) -> Outcome: ...
