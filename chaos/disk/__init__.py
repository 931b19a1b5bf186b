"""A disk that misbehaves on order, for real processes: errors, short writes, slow syncs, no room, and loss of power.

To test how a program handles a failing disk, the disk must fail at the very call that matters. And only a loss of power
shows which bytes were not synced. So a small library is loaded in front of the C library (`LD_PRELOAD`). It replaces
the calls that change files below one directory. In a side directory it keeps what the platter would hold: the bytes of
a file as of its last successful sync, and the names of a directory as of its last one. Once the process is dead,
`FaultyDisk.lose_power` makes that the content of the disk. A random part of the rest is kept, too, since a disk may
have written any of it.

Rules:
 - bytes that a successful sync covered survive a loss of power; bytes that were never written do not appear;
 - a sync of a file does not make its name durable: that takes a sync of its directory, as POSIX says (file systems of
   Linux do more, but a program must not rely on it);
 - write-back errors are as on Linux: the page cache still has bytes that the platter will never get, a later sync finds
   nothing to do and succeeds, and each open file reports the error once;
 - a call that the library cannot follow ends the process with a message; it never passes unseen.

Rejected: a file system of our own (it needs root, and a kernel module or FUSE); faults inside the program (they test
our idea of where it writes); undo records (a crash between write and record loses one, while a copy that only a sync
moves forward is right at every moment).

Not covered: writes through a shared mapping, and errors that a device hides from the kernel. Each directory keeps the
order of its changes of names.
"""

from chaos.disk.disk import FaultyDisk, LostWrites
from chaos.disk.library import NoCompiler, build

__all__ = ["FaultyDisk", "LostWrites", "NoCompiler", "build"]
