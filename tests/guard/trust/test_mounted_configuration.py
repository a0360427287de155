"""Configuration as Kubernetes mounts it: links into a folder that is exchanged as one."""

import pytest

from privgate.errors import PrivgateError
from privgate.guard.config import Watch

GUARD = """\
schema: privgate/guard/v1
registry: {registry}
trust: trust.json
policy: sha256:{digest}
protected: {{aliases: [production], stages: [], models: []}}
"""


class Mount:
    """A folder of a ConfigMap: ``guard.yaml -> ..data/guard.yaml``, ``..data -> ..<time>``."""

    def __init__(self, folder):
        self.folder, self.count = folder, 0
        for name in ("guard.yaml", "trust.json"):
            (folder / name).symlink_to(f"..data/{name}")

    def update(self, store, guard):
        self.count += 1
        data = self.folder / f"..2026_{self.count}"
        data.mkdir()
        (data / "guard.yaml").write_text(guard)
        store.save(data / "trust.json")
        (self.folder / "..next").symlink_to(data.name)
        (self.folder / "..next").replace(self.folder / "..data")


def text(registry):
    return GUARD.format(registry=registry, digest="a" * 64)


def test_an_exchanged_folder_counts_at_once(world, tmp_path):
    mount = Mount(tmp_path)
    mount.update(world.trust, text("first"))
    watch = Watch(tmp_path / "guard.yaml")
    assert watch.guard().registry == "first"
    assert not watch.guard().trust.keys[0].revoked
    mount.update(world.trust.revoke(world.signer.public_key.keyid, at=world.now), text("second"))
    assert watch.guard().registry == "second"
    assert watch.guard().trust.keys[0].revoked
    mount.update(world.trust, "schema: [")
    for _ in range(2):  # nothing older is used meanwhile
        with pytest.raises(PrivgateError, match="not YAML"):
            watch.guard()
    mount.update(world.trust, text("third"))
    assert watch.guard().registry == "third"
