"""The settings that clients have set for this node, or for all nodes (KIP-226), take effect here."""

from __future__ import annotations

from broker.config.layers import LiveSettings
from broker.controller.service import MetadataService
from broker.metadata.ids import NodeIdentity
from broker.metadata.image import Change, ConfigsChanged


class OwnSettings:
    """Follows the committed metadata."""

    def __init__(self, me: NodeIdentity, settings: LiveSettings, metadata: MetadataService) -> None:
        self._me = me
        self._settings = settings
        self._metadata = metadata
        metadata.on_change.append(self._image_changed)

    def _image_changed(self, change: Change) -> None:
        if isinstance(change, ConfigsChanged) and change.kind == "broker":
            configs_of = self._metadata.image.configs_of
            self._settings.change(configs_of("broker", ""), configs_of("broker", str(self._me.node_id)))
