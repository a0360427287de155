"""Automatic checks: a reconciler over the registry, which holds all of its state.

A version asks for a check by the tag ``privgate.request`` (policy, or policy and alias) or by the alias ``candidate``.
Whatever was missed, interrupted or done twice, the next look at the registry says what is still to be done:

========================  ===========================================================================================
``request``               what a version asks for, and who works on it until when: one tag, removed when it is answered
``lease``                 how one of several reconcilers takes a request
``child``                 one command in a process of its own, which ends with the process that started it
``reconciler``            one look at everything that asks, and what follows from it
``work``                  what one request needs: a check, or a promotion
``settings``              what the operator decided, and what was done
``sweeper``               does everything that is released still verify
``webhook``               who may wake the reconciler
``app``                   health, metrics and the webhook over HTTP
========================  ===========================================================================================
"""
