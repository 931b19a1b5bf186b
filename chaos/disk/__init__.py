"""A disk that misbehaves on order, for real processes: errors, short writes, slow syncs, no room, and loss of power.

Problem: what a program does when its disk fails can be tested only on a disk that fails, at the very call that matters;
and nothing shows what was not synced but a machine that loses its power. Here a small library is loaded in front of the
C library (`LD_PRELOAD`). It stands in for the calls that change files below one directory, and keeps, in a side
directory, what the platter would hold: the bytes of a file as of the last sync that succeeded, and the names of a
directory as of its last one. `FaultyDisk.lose_power` makes that the truth, once the process is dead, with as much of
the rest as chance will have it: a disk may have written any of it.

Rules never broken:
 - what a sync that succeeded covered is there after a loss of power, and nothing is there that was never written;
 - a sync of a file says nothing of its name: that takes a sync of its directory, as POSIX has it (Linux' file systems
   are kinder, and a program must not count on it);
 - errors of writing back are Linux': the page cache still has what the platter never will, a later sync finds nothing
   to do and succeeds, and each open file is told once, whoever syncs first;
 - a call that the library cannot follow ends the process with a word, rather than to pass by unseen.
Rejected: a file system of our own (it needs root, and a kernel module or FUSE); faults inside of the program (they test
the test's idea of where it writes); undo records (a crash of the program between write and record loses one; a copy
that is only ever moved forward by a sync is right at every moment).

What it does not show: writes through a shared mapping, and errors that a device hides from the kernel. The order of
names is kept in each directory.
"""

from chaos.disk.disk import FaultyDisk, LostWrites
from chaos.disk.library import NoCompiler, build

__all__ = ["FaultyDisk", "LostWrites", "NoCompiler", "build"]
