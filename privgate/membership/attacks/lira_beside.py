"""Likelihood ratio of answers beside the record alone: the record itself is never asked."""

from privgate.membership.attacks.lira_neighbours import LiraNeighbours


class LiraBeside(LiraNeighbours):
    """Likelihood ratios of answers beside a record and of their differences; nobody asks about the record itself.

    Threat model: black box with probabilities; several queries beside the record's own features, which are never asked.
    The adversary knows the record and its label, the training algorithm, and data of the same population, and trains
    shadow models with and without the record. Score and cut are those of ``lira_neighbours``.

    Source: Carlini et al. (2022), Algorithm 1 and section VI.D (several queries).

    Left out: the record's own answer, so that an endpoint gains nothing by refusing or answering it otherwise.
    """

    name = "lira_beside"
    title = "Likelihood ratio, beside the record only"
    threat_model = "probabilities beside the record, never for it; trains shadow models with and without it"
    asks = "beside"
