"""``privgate forget``: a sharded model's next version, without some people."""

import dataclasses
import json
import math
from pathlib import Path
from typing import TYPE_CHECKING

import click

from privgate.cli import console, options, outputs
from privgate.errors import UsageError

if TYPE_CHECKING:
    from privgate.forgetting.forget_members import Forgotten, Seen

#: of the sentence on deletion capacity: plausible deniability, and how likely somebody was in the data
RHO, PRIOR = 0.9, 0.001


@click.command()
@options.subject
@click.option("--ids", required=True, metavar="A,B,…|@FILE", help="Who is to be forgotten; a file has one id a line.")
@click.option("--store", default=None, metavar="FOLDER|URI|artifacts", help="Where the data that are left may be kept.")
@click.option(
    "--out",
    type=click.Path(dir_okay=False, path_type=Path),
    default=None,
    help="File for the proof: digests of every member, versions, cost; it names nobody.",
)
def forget(*, uri: str, tracking_uri: str | None, ids: str, store: str | None, out: Path | None) -> int:
    """Register the next version of a sharded model without some people.

    Only the members that held them are trained again, on what is left of their shards. Every other member is byte for
    byte what it was. Those trained again equal a second training without these people, as both are stored.

    The stored model is opened here. Promote it like any other version; versions that were trained on somebody and were
    released stay told, and their bounds add up.
    """
    from privgate.forgetting import forget_members
    from privgate.forgetting import forget_members as members

    people = _people(ids)
    if out is not None:
        outputs.folder(out.parent, "--out")
    done, subject = members.forget(uri, people, tracking_uri=tracking_uri, store=store)
    new = done.uri.rpartition("/")[2]
    seen = [s for s in forget_members.versions(subject.name, people, tracking_uri=tracking_uri) if s.version != new]
    told = [s for s in seen if s.people]
    total, limit = forget_members.together(told), float((subject.recipe.own_model or {})["dtp"])
    for line in _lines(done, uri, told, total, limit):
        click.echo(console.plain(line))
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(json.dumps(_proof(done, uri, told, total, limit), indent=1), encoding="utf-8")
    return 0


def _people(ids: str) -> list[str]:
    if not ids.startswith("@"):
        found = [i.strip() for i in ids.split(",")]
    else:
        try:
            found = [i.strip() for i in Path(ids[1:]).read_text(encoding="utf-8").splitlines()]
        except (OSError, UnicodeDecodeError) as exc:
            raise UsageError(f"--ids: {ids[1:]!r} cannot be read: {exc}") from exc
    if not (found := [i for i in found if i]):
        raise UsageError("--ids names nobody")
    return list(dict.fromkeys(found))


def _lines(done: "Forgotten", uri: str, told: list["Seen"], total: float, limit: float) -> list[str]:
    from privgate.privacy_claims.accountant import deletion_capacity

    members, named = ", ".join(map(str, done.members)), ", ".join(s.version for s in told) or "none"
    rest = len(done.after) - len(done.members)
    bound = f"at most {total:.4g} nats" if math.isfinite(total) else "no bound: not all of them are sharded or readable"
    capacity = deletion_capacity(limit, PRIOR, RHO).sentence
    return [
        f"registered {done.uri}: {uri} without {done.people} people ({done.records} records)",
        f"  members {members} of {len(done.after)} were trained again and equal a second training without these people",
        f"  the other {rest} are byte for byte those of {uri}, as both versions are stored",
        f"  cost: {done.trained_on:,} of {done.of_records:,} records read, {done.seconds:.3g} s of processor time",
        f"  instead of deleting: if one label is drawn at ε = {limit:g}, {capacity}; each further label costs ε again",
        f"  {len(told)} registered versions were trained on some of them ({named}); all answers together: {bound}",
    ]


def _proof(done: "Forgotten", uri: str, told: list["Seen"], total: float, limit: float) -> dict[str, object]:
    from privgate.privacy_claims.accountant import deletion_capacity

    return {
        "from": uri,
        **dataclasses.asdict(done),
        "versions": [{"version": s.version, "aliases": s.aliases, "problem": s.problem} for s in told],
        "bound_of_all_versions": total if math.isfinite(total) else None,
        "deletion_capacity": dataclasses.asdict(deletion_capacity(limit, PRIOR, RHO)),
    }
