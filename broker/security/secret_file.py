"""Where a node finds its secret: in the file that `varve.cluster.secret` names, or in a variable of the environment."""

from __future__ import annotations

import os
import stat
from pathlib import Path

from broker.security.cluster_secret import NO_SECRET, VARIABLE, ClusterSecret, SecretError, parse_secret

MAX_FILE_BYTES = 4096
#: Docker and Kubernetes mount secrets here, readable by everybody in the container, which is only the node.
MOUNTED_SECRETS = (Path("/run/secrets"), Path("/var/run/secrets"))


def load_secret(file: str | None, variable: str | None) -> ClusterSecret:
    """The secret of a node, from the file that `varve.cluster.secret` names and the value of the variable; NO_SECRET if
    there is neither. Raises SecretError."""
    in_file = None if file is None else _read_secret(file)
    in_variable = None if variable is None else parse_secret(variable, VARIABLE)
    if in_file is not None and in_variable is not None and in_file != in_variable:
        raise SecretError(f"the file that varve.cluster.secret names and {VARIABLE} differ; use one of them")
    return in_file or in_variable or NO_SECRET


def _read_secret(name: str) -> ClusterSecret:
    # A message that repeated the name would print the secret if somebody took the setting for the secret itself.
    source = "the file that varve.cluster.secret names"
    path = Path(name).absolute()
    try:
        with path.open("rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(MAX_FILE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or "it is no name of a file"
        raise SecretError(f"{source} cannot be read: {reason}") from None
    is_mounted = any(folder in path.parents for folder in MOUNTED_SECRETS)
    if mode & (stat.S_IRWXG | stat.S_IRWXO) and not is_mounted:
        raise SecretError(f"{source} can be used by others; only its owner may read it: chmod 600 {path}")
    if len(data) > MAX_FILE_BYTES:
        raise SecretError(f"{source} is larger than {MAX_FILE_BYTES} bytes")
    try:
        return parse_secret(data.decode(), source)
    except UnicodeDecodeError:
        raise SecretError(f"{source} is no text") from None


def write_secret(path: Path, secret: str) -> None:
    """Write a secret to a file that only its owner can read. It is there as a whole or not at all, durably.

    Raises FileExistsError if there is a file of that name, OSError.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secret + "\n")
            file.flush()
            os.fsync(file.fileno())
        os.link(temporary, path)  # unlike a rename it replaces nothing
    finally:
        temporary.unlink()
