"""RocksDB options for a replicated log, and what they were measured to do.

The problem: the log is written once, in key order within each group, read mostly at its end, and trimmed at its front;
plain options compress it (which costs more than it saves: 2 us/KiB) and rewrite it twice.

Measured here (2 shared cores, rocksdict 0.3.29, 12 groups, 2 GB, one sync per batch of 1 MiB; whole process, so the
flushes in the background are included, and the making of random values):

    values of 256 KiB        MB/s   CPU us/KiB  bytes written / byte   peak memory
    plain options             163      8.4         5.0                  151 MiB
    no compression            183      6.1         5.0                  141
    + level tuned             187      4.2         4.6                  129
    + universal               192      5.6         3.6                  144
    blob files, GC always     211      7.9         3.2                  176
    blob files, GC by hand    306      3.3         2.0                  143   (64 MiB memtables)
    same, 32 MiB memtables    338      3.4         2.0                   93   <- these options

So values of 4 KiB and more go into blob files: once to the write-ahead log, once to a blob file, never again. The
tables then hold keys and pointers, compactions touch kilobytes, and a trimmed range costs nothing but its pointers. A
blob file goes when nothing points into it; what a long-lived group pins among short-lived ones is moved by
`RocksDisk.reclaim`. Of the CPU that remains, 63 % is CRC-32C, which this build of the library computes in software
(1.04 us/KiB, once for the log and once for the blob file): nothing here can change that.

Rejected: a column family per group (a memtable each: memory grows with partitions); the write-ahead log recycled
(faster by nothing measurable, and forbids the recovery mode below); a bloom filter (every read here hits).
"""

from __future__ import annotations

from dataclasses import dataclass

from rocksdict import (
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    DBRecoveryMode,
    Options,
)

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class DiskOptions:
    """Limits of one store. The defaults are for a node; tests make them small to see flushes and compactions."""

    memtable_bytes: int = 32 * MIB
    """Larger ones gain nothing (blob files are written at flush either way) and cost memory, also when idle."""
    memtables: int = 3
    """One that is filled, one that is flushed, one in reserve: then writes wait. Bounds memory at 3 x 32 MiB."""
    wal_bytes: int = 128 * MIB
    """Replayed at a restart after a kill: about 0.3 s per 100 MiB. More than the memtables can hold is never kept."""
    block_cache_bytes: int = 16 * MIB
    """Index blocks and the small values of hot keys. Entries are in the page cache: no second copy."""
    blob_bytes: int = 4 * KIB
    """Values from here on go to blob files; below it, a pointer saves too little."""
    open_files: int = 512
    """Descriptors the store may hold; the rest of the process's limit is for connections."""
    verify_at_open_bytes: int = 64 * MIB
    """A store up to this size is read through once at open (50-100 ms): damage shows before the node votes. A larger
    one is checked as far as this, and elsewhere when it is read."""


def rocks_options(limits: DiskOptions) -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_compression_type(DBCompressionType.none())

    options.set_write_buffer_size(limits.memtable_bytes)
    options.set_max_write_buffer_number(limits.memtables)
    options.set_max_total_wal_size(limits.wal_bytes)
    options.set_allow_concurrent_memtable_write(False)  # one writer thread: no need to pay for more

    options.set_enable_blob_files(True)
    options.set_min_blob_size(limits.blob_bytes)
    options.set_blob_file_size(2 * limits.memtable_bytes)  # one flush, one blob file
    options.set_enable_blob_gc(False)  # by hand, in RocksDisk.reclaim: see the table above

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
    options.set_max_bytes_for_level_base(8 * limits.memtable_bytes)
    options.set_target_file_size_base(limits.memtable_bytes)

    # A torn last record is what a kill in the middle of a write leaves, and was never acknowledged: legal. Anything
    # wrong before it refuses to open. (Point-in-time recovery, the default, would stop there and drop every later
    # record in silence, acknowledged or not; absolute consistency would refuse every torn tail.) A log cut short
    # looks like a torn tail in every mode, so `watermark.py` remembers how far the last sync reached.
    options.set_wal_recovery_mode(DBRecoveryMode.tolerate_corrupted_tail_records())
    options.set_paranoid_checks(True)

    options.set_keep_log_file_num(4)
    options.set_max_log_file_size(4 * MIB)
    options.set_stats_dump_period_sec(0)
    options.set_stats_persist_period_sec(0)
    return options
