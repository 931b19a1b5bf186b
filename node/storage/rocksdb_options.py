"""Limits of the store, and the options of the RocksDB in it.

RocksDB holds keys, small values, and the locations of large values in the write-ahead log (see write_ahead_log.py, with
the figures that led there). It has no write-ahead log of its own, so what it holds in memory is what a restart reads
from the write-ahead log again. Compactions move kilobytes for every gigabyte of events; no tuning of them is worth a
line here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rocksdict import BlockBasedOptions, Cache, DBCompressionType, Options

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """The defaults are for a node; tests make them small to see segments change and memtables flushed."""

    segment_bytes: int = 64 * MIB
    """Size of a segment of the write-ahead log. Space comes back in such pieces; each change of segment costs two syncs
    and a file."""
    separate_bytes: int = 1 * KIB
    """Entries from this size on stay in the write-ahead log only. Below it, a pointer saves too little."""
    direct: Literal["never", "synced", "drained"] = "never"
    """Moment at which large writes go past the page cache (`wal/write_path.py`); until then a killed process loses
    them. "synced": at a sync, if only synced writes count (durability "fsync"); "drained": at `Store.drain`, if those
    count that survive the process ("replicated")."""
    replay_bytes: int = 128 * MIB
    """Journal written since RocksDB's last flush: what a restart after a kill reads again, in some 0.2 s."""
    memtable_bytes: int = 16 * MIB
    """Keys, pointers and small values since then; bounds memory."""
    unsynced_bytes: int = 32 * MIB
    """Unsynced bytes in the page cache, or in memory on the way past it, when nobody asks for syncs (durability
    "replicated"): then the store syncs by itself in the background, so that no later sync is long."""
    block_cache_bytes: int = 16 * MIB
    """Index blocks and small values of hot keys. Entries are not in it."""
    open_files: int = 256
    """Tables that RocksDB may hold open; the process's other descriptors are for connections."""
    verify_at_open_bytes: int = 64 * MIB
    """A store up to this size is read through once at open (50-100 ms): damage shows before the node votes. A larger
    one is checked as far as this, and elsewhere when it is read."""
    garbage_share: float = 0.5
    """Sealed segments are thinned out when more than this share of them is dead: each live byte is then moved at most
    about once for each byte that comes free ..."""
    garbage_floor_bytes: int = 256 * MIB
    """... and not for less than this: it is not worth the disk's time."""
    short_share: float = 0.3
    """A file system is short of space when less than this share of it is free ..."""
    garbage_of_free: float = 0.25
    """... and then at most so much of what is free beyond the reserve may be dead: the fuller the disk, the less."""
    reserve_bytes: int = 0
    """Cleaning leaves so many bytes free where it can: with less, the node refuses events."""
    move_bytes: int = 1 * MIB
    """Bytes of live entries moved out of a thin segment along with one batch: lengthens a turn by a millisecond or
    two."""


def rocks_options(limits: DiskOptions) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.none())

    # RocksDB must never flush by itself: a table could become durable before the write-ahead log that its pointers
    # lead to. The store flushes far below this size, always right after a sync of the write-ahead log.
    options.set_write_buffer_size(8 * limits.memtable_bytes + 64 * MIB)
    options.set_max_write_buffer_number(4)
    options.set_arena_block_size(1 * MIB)
    options.set_allow_concurrent_memtable_write(False)  # one writer at a time: no need to pay for more

    tables = BlockBasedOptions()
    tables.set_block_cache(Cache(limits.block_cache_bytes))
    tables.set_cache_index_and_filter_blocks(True)  # else index memory grows with the data
    tables.set_block_size(16 * KIB)
    tables.set_format_version(5)
    options.set_block_based_table_factory(tables)
    options.set_max_open_files(limits.open_files)
    options.set_max_background_jobs(2)
    options.set_bytes_per_sync(MIB)  # flushes reach the disk smoothly, not in one burst that delays the next sync
    options.set_level_zero_file_num_compaction_trigger(4)
    options.set_max_bytes_for_level_base(128 * MIB)
    options.set_target_file_size_base(32 * MIB)
    options.set_paranoid_checks(True)

    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
