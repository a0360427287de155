"""``python -m privgate.serve.child ARGUMENTS``: the command line, which ends when its starter does.

The starter holds the other end of stdin open. However it ends, kill -9 included, stdin then ends, and so does this
process with its workers: nothing is attached on behalf of a reconciler that is gone. The watch is a process: a thread
would wait for code that holds the interpreter, such as a regular expression without end.
"""

import os
import runpy
import signal


def _end_with_starter() -> None:
    while os.read(0, 1):
        pass
    os.killpg(os.getpgid(0), signal.SIGKILL)


def main() -> None:
    """Run the command line beside the watch; the starter must have made this process lead its own group."""
    if not os.fork():
        _end_with_starter()
    runpy.run_module("privgate", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
