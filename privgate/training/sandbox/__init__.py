"""A sandbox for training code: a worker process that sees its own code and data, read-only, and nothing else.

Training code is untrusted, and so is a stored model. Under the user who checks, either could read that user's home,
registry password, ledger and ``/proc``. In a box it runs as nobody, without network, home, or anybody's environment;
what it answers comes back as numbers, never as a pickle.

==============  =====================================================================================================
``bubblewrap``  is it here, does it work, the command line that makes a box, and what code inside may take and ask
``inside``      a server that imports libraries and forks workers; a worker takes calls, answers in numbers or JSON
``wire``        those answers as bytes, and reading them back from somebody who may lie
``workers``     workers seen from outside, sandboxed or not: one recipe's code never meets another's, nor a stored model
==============  =====================================================================================================

What a box does not promise: the kernel is shared, so a hole in it is a way out; training code may lie about its own
probabilities, which the controls judge; recipes that need a GPU or the network find neither.
"""
