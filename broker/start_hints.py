"""What a person can do about a data directory with which a node cannot start."""

from __future__ import annotations

import errno
import os

from storage.disk import DiskError, DiskFullError

_ANOTHER = "another one (log.dirs, --log-dirs)"


def explain(log_dir: str, error: DiskError) -> str:
    """Sentences that say what is wrong with `log_dir` and what to do. They only explain the error of a call that was
    made, so that no look in advance can be wrong about it."""
    path = os.path.abspath(log_dir)
    cause = error.__cause__
    code = cause.errno if isinstance(cause, OSError) else None
    if code == errno.EMFILE:
        return f"{error}. Raise the limit on open files (ulimit -n 65536)"
    if (file := _file_on_the_way(path)) is not None:
        return (
            f"the data directory {path} cannot be used: {file} is a file, not a directory. Choose {_ANOTHER}"
        )
    if code == errno.EROFS:
        return f"the data directory {path} is on a volume that is mounted read-only. Choose {_ANOTHER}"
    if isinstance(error, DiskFullError):
        return f"the data directory {path} has no room: {error}. Free some, or choose {_ANOTHER}"
    if not os.path.isdir(path):
        reason = (cause.strerror if isinstance(cause, OSError) else None) or error
        return f"the data directory {path} cannot be made: {reason}. Choose {_ANOTHER}"
    if code in (errno.EACCES, errno.EPERM):
        # By number: in a container the user has a name that the host does not know.
        user = os.geteuid()
        return (
            f"the data directory {path} cannot be used: {error}, for the user {user}. "
            f"Give it to that user (chown -R {user} {path}), or choose {_ANOTHER}"
        )
    return f"disk: {error}"


def _file_on_the_way(path: str) -> str | None:
    """The part of the path, or all of it, that is there and no directory."""
    while path != os.path.dirname(path):
        if os.path.exists(path):
            return None if os.path.isdir(path) else path
        path = os.path.dirname(path)
    return None
