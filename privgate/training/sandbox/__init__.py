"""A sandbox for training code: a worker process that sees its own code and data, read-only, and nothing else.

Training code and a stored model run as nobody, without network, home, or anybody's environment. Under the user who
checks, either could read that user's home, registry password, ledger and ``/proc``.

What a box does not promise: the kernel is shared, so a hole in it is a way out; training code may lie about its own
probabilities, which the controls judge; recipes that need a GPU or the network find neither.
"""
