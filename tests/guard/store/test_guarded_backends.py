"""The guard before a plain server, and when it is itself broken."""

import pytest
from mlflow.exceptions import MlflowException

from privgate.guard import statement

pytestmark = [pytest.mark.server, pytest.mark.filterwarnings("ignore::FutureWarning")]


# the guard itself broken: nothing gets through


def test_a_broken_or_missing_configuration_refuses_and_a_repaired_one_needs_no_restart(registry, site, name):
    version = registry.log(name)
    registry.sign(name, version)

    def promote():
        registry.client.set_registered_model_alias(name, "production", version)

    def refuse(says):
        with pytest.raises(MlflowException, match=says):
            promote()

    with site.restored():
        good = site.config.read_text()
        for broken in (good + "surprise: true\n", good.replace("dtp-1", "no-such-policy"), "}{", None):
            site.config.unlink() if broken is None else site.config.write_text(broken)
            refuse(f"privgate: alias 'production' of '{name}' version 1 refused")
        site.config.write_text(good)
        promote()
        site.save(site.trust.revoke(site.signer.public_key.keyid, at=statement.now()))  # counts at once
        refuse("revoked")
        (site.folder / "trust.json").write_text("{")
        refuse("refused")


@pytest.mark.slow
def test_files_are_read_in_the_call_path_where_the_operator_asks(registry, site, name):
    version = registry.log(name)
    registry.sign(name, version)
    with site.restored():
        site.config.write_text(site.config.read_text() + "check_files: true\n")
        registry.client.set_registered_model_alias(name, "production", version)
        (registry.folder / "artifacts" / registry.place(name, version) / "weights.json").write_text('"stolen"')
        with pytest.raises(MlflowException, match="not those that were checked"):
            registry.client.set_registered_model_alias(name, "production", version)
