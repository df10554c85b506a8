"""Whom a node trusts."""

from __future__ import annotations

from dataclasses import dataclass

from broker.config.values import optional_text, setting


@dataclass(frozen=True, kw_only=True)
class SecurityKeys:
    cluster_secret_file: str | None = setting(
        "varve.cluster.secret",
        optional_text,
        "",
        """The file with the secret that all nodes of the cluster share, and with which they prove themselves to each
        other. Only its owner may read it. `varve cluster secret` makes one. A second line is accepted from others, too,
        for a change of the secret. Instead of a file, VARVE_CLUSTER_SECRET in the environment may hold the secret.
        Empty, and no such variable: there is no secret, and the node listens for other nodes on localhost only.""",
    )
