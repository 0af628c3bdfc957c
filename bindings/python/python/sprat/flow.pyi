import os
from collections.abc import Callable, Sequence
from typing import Final, Optional, Union

class Error(Exception):
    """Why a copy was not made. There is no file under the destination's name then, or the one that was there before."""

class UsageError(Error):
    """What was asked for makes no sense."""

class NotFound(Error):
    """The source has no such file."""

class Denied(Error):
    """The source does not give it to us."""

class Unreachable(Error):
    """Nobody there, or not for long enough. The same call goes on from what has come."""

class Untrusted(Error):
    """The other end's certificate is not trusted."""

class ProtocolError(Error):
    """The other end does not keep to HTTP, or not to what it said before."""

class Changed(Error):
    """The file changed while it was fetched, again and again."""

class Corrupt(Error):
    """Bytes arrive as others than were sent, or the file has not the sum that was given."""

class Exists(Error):
    """A file of the destination's name is there, and is another than the source."""

class DestinationError(Error):
    """The destination, or a file that was named, cannot be written or read."""

class Progress:
    """Where a copy is."""

    done: Final[int]
    """Bytes of the file that are here, and right as far as can be known."""
    received: Final[int]
    """Bytes of those that came in this call."""
    length: Final[Optional[int]]
    """Bytes of the file, if they are known."""
    rtt: Final[float]
    """The round-trip time as a stream saw it last, seconds; 0 when not known."""
    retries: Final[int]
    """Connections that failed and were tried again."""
    wrong: Final[int]
    """Groups of a megabyte that arrived wrong, and were fetched again."""

class Outcome:
    """What came of a copy."""

    target: Final[str]
    """The file."""
    length: Final[int]
    """Its length, bytes."""
    blake3: Final[Optional[str]]
    """Its BLAKE3 hash, hexadecimal; none when it was there already."""
    verified: Final[bool]
    """Whether every group was verified against the source's value, or the whole against a sum that was given."""
    unchanged: Final[bool]
    """Whether it was there already, as long and as old as the source, and nothing was done."""
    sources: Final[list[tuple[str, int]]]
    """What came from where, bytes; the host that decided what the file is first."""
    progress: Final[Progress]
    """How it went."""
    seconds: Final[float]
    """How long it took."""

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
