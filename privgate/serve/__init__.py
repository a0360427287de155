"""Automatic checks: a reconciler over the registry, which holds all of its state.

A version asks for a check by the tag ``privgate.request`` (policy, or policy and alias) or by the alias ``candidate``.
Whatever was missed, interrupted or done twice, the next look at the registry says what is still to be done.
``reconciler`` looks at everything that asks, ``work`` runs the check or promotion that is left in a ``child``, and
``app`` answers over HTTP and lets a webhook wake it.
"""
