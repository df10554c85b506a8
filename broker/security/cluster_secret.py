"""The secret that the nodes of a cluster share.

It is a text without spaces at its ends, of at least MIN_SECRET_BYTES. `varve cluster secret` makes one. A second line
is a secret that is accepted, too, and not used: with it the secret of a running cluster can be changed, one node after
the other. Where a node finds its secret: `secret_file`.
"""

from __future__ import annotations

import base64
from collections.abc import Callable

from broker.config.values import is_loopback

VARIABLE = "VARVE_CLUSTER_SECRET"
MIN_SECRET_BYTES = 16
#: What `new_secret` draws.
SECRET_BYTES = 32
#: The secret, and one more that is accepted.
MAX_SECRETS = 2


class SecretError(Exception):
    """There is no usable secret. The message is for the person who starts the node, and never contains a secret."""


class ClusterSecret:
    """One secret with which this node proves itself, and all that it accepts. Nothing prints it."""

    __slots__ = ("accepted",)

    def __init__(self, *secrets: bytes) -> None:
        """The node's own secret first. None: the node has no secret, and its proofs prove nothing."""
        #: Keys. Invariant: not empty; without a secret it is the empty key alone.
        self.accepted: tuple[bytes, ...] = secrets or (b"",)

    @property
    def own(self) -> bytes:
        """The key with which this node proves itself when it dials."""
        return self.accepted[0]

    def __bool__(self) -> bool:
        """Whether there is a secret."""
        return self.own != b""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ClusterSecret) and self.accepted == other.accepted

    def __hash__(self) -> int:
        return hash(self.accepted)

    def __repr__(self) -> str:
        return f"<{len(self.accepted) if self else 0} cluster secrets>"


NO_SECRET = ClusterSecret()


def new_secret(entropy: Callable[[int], bytes]) -> str:
    """A secret as text, from `entropy`, which returns so many bytes that nobody can predict."""
    return base64.b64encode(entropy(SECRET_BYTES)).decode("ascii")


def parse_secret(text: str, source: str) -> ClusterSecret:
    """The secret of a text, one line each. Raises SecretError, which names `source`."""
    lines = [line.strip().encode() for line in text.splitlines() if line.strip()]
    if not lines:
        raise SecretError(f"{source} is empty; `varve cluster secret` makes a secret")
    if len(lines) > MAX_SECRETS:
        raise SecretError(
            f"{source} has {len(lines)} lines; it may have the secret, and one more that is accepted"
        )
    if min(map(len, lines)) < MIN_SECRET_BYTES:
        raise SecretError(
            f"{source} has a secret of less than {MIN_SECRET_BYTES} bytes, which could be guessed; "
            "`varve cluster secret` makes a better one"
        )
    return ClusterSecret(*dict.fromkeys(lines))


def refusal_to_listen(secret: ClusterSecret, host: str, listener: str) -> str | None:
    """Why a node with this secret must not listen for other nodes on `host`. None: it may."""
    if secret or is_loopback(host):
        return None
    return (
        f"the listener {listener} is for other nodes and can be reached from other machines, but this node has no "
        "cluster secret, so that anybody there could speak as a node. Make one with `varve cluster secret --out FILE`, "
        f"copy the file to every node, and name it in varve.cluster.secret (or set {VARIABLE}). A node that is only "
        f"for this machine listens on {listener}://localhost"
    )
