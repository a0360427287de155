"""Promoting: moving an alias to a version, which the registry may refuse."""

from privgate import digest
from privgate.errors import DigestMismatchError, RegistryError
from privgate.registry.client import address_of, answering, connect
from privgate.registry.named import named
from privgate.registry.stored_files import stored_files
from privgate.subject.subject import Subject


def promote(subject: Subject, alias: str, *, tracking_uri: str | None = None) -> None:
    """Set ``alias`` to the version that was checked, if it still is what was checked.

    Parameters
    ----------
    subject : Subject
        From ``load_subject``.
    alias : str
        Without ``@``.
    tracking_uri : str, optional
        Where the subject came from if absent.

    Raises
    ------
    RegistryError
        The subject is no registered version, or the registry refused; its own words are in the message.
    DigestMismatchError
        The version's files changed since they were checked.
    """
    if not subject.version:
        raise RegistryError(f"{subject.uri or subject.name} is no registered version; only versions have aliases")
    address = tracking_uri or address_of(str(subject.detail.get("model_id")))
    client = connect(address)
    uri = f"models:/{subject.name}/{subject.version}"
    present = named(client, uri)
    with stored_files(client, present.storage) as stored:
        if digest.of_manifest(stored.digests()) != subject.digests["files"]:
            raise DigestMismatchError(f"the files of {uri} changed while it was being checked; check it again")
    with answering(f"setting alias {alias!r} of {subject.name} to version {subject.version}"):
        client.set_registered_model_alias(subject.name, alias, subject.version)
