"""What code in a box may not ask the kernel: what no training needs, and ways out of boxes have been made of.

A filter in the kernel's own small language (seccomp, BPF), which every process started later inherits. On machines of
another kind than these two the namespaces stand alone.
"""

import ctypes
import errno
import platform
import struct
from collections.abc import Mapping

#: (x86_64, aarch64): numbers of the system calls that are refused
_REFUSED: Mapping[str, tuple[int, int]] = {
    "ptrace": (101, 117),
    "pivot_root": (155, 41),
    "mount": (165, 40),
    "umount2": (166, 39),
    "kexec_load": (246, 104),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "open_by_handle_at": (304, 265),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "pidfd_getfd": (438, 438),
    "mount_setattr": (442, 442),
}
#: (x86_64, aarch64): what makes sockets, and the kinds that a namespace of networks holds: all others reach the host,
#: the machine that it runs on, or the kernel's own services
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_UNIX, _INTERNET = 1, (2, 10, 16)
_CLONE, _CLONE3 = (56, 220), 435
#: machine -> (column above, what the kernel calls the machine)
_MACHINES: Mapping[str, tuple[int, int]] = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEW_NAMESPACES = 0x7E020000  # mount, cgroup, uts, ipc, user, pid, net
_OTHER_ABI = 0x40000000

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000
_AT_NUMBER, _AT_MACHINE, _AT_FLAGS = 0, 4, 16
_SET_SECCOMP, _FILTER = 22, 2


class _Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


def refuse(*, network: bool = False) -> None:
    """Install the filter in this process, for good.

    Parameters
    ----------
    network : bool
        Whether the box shares the host's network: then sockets of its own kind reach services by abstract names, which
        no folder hides.

    Raises
    ------
    OSError
        The kernel did not take it.
    """
    if platform.machine() not in _MACHINES:
        return
    code = filter_for(*_MACHINES[platform.machine()], network=network)
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_SET_SECCOMP, _FILTER, ctypes.byref(_Program(len(code) // 8, code)), 0, 0):
        raise OSError(ctypes.get_errno(), "the kernel takes no filter of system calls")


def filter_for(column: int, machine: int, *, network: bool = False) -> bytes:
    """Return the filter's instructions, 8 bytes each.

    Parameters
    ----------
    column : int
        Of ``_REFUSED``.
    machine : int
        What the kernel calls it; calls in another machine's manner are all refused.
    network : bool
        As in ``refuse``.
    """
    fail = _step(_RETURN, _FAIL | errno.EPERM)
    steps = [_step(_LOAD, _AT_MACHINE), _step(_IF_EQUAL, machine, 1, 0), fail]
    steps += [_step(_LOAD, _AT_NUMBER), _step(_IF_AT_LEAST, _OTHER_ABI, 0, 1), fail]
    for numbers in _REFUSED.values():
        steps += [_step(_IF_EQUAL, numbers[column], 0, 1), fail]
    # its flags lie in memory, where a filter cannot look; libraries then use the older call
    steps += [_step(_IF_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    steps += [_step(_IF_EQUAL, _CLONE[column], 0, 3), _step(_LOAD, _AT_FLAGS)]
    steps += [_step(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1), fail]
    for number, kinds in ((_SOCKET, _INTERNET if network else (*_INTERNET, _UNIX)), (_SOCKETPAIR, (_UNIX,))):
        steps += [_step(_LOAD, _AT_NUMBER), _step(_IF_EQUAL, number[column], 0, len(kinds) + 3)]
        steps += [_step(_LOAD, _AT_FLAGS)]
        steps += [_step(_IF_EQUAL, kind, len(kinds) - at, 0) for at, kind in enumerate(kinds)]
        steps += [fail, _step(_RETURN, _ALLOW)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value)
