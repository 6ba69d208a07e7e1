"""The database: RocksDB with our options, opened in a folder. Does not know what is stored, nor who writes."""

from __future__ import annotations

from pathlib import Path

from rocksdict import AccessType, BlockBasedOptions, Cache, DBCompressionType, DBRecoveryMode, Options, Rdict

from magnetar.storage.problem import problem_of

STATE_FAMILY = "state"  # entries live in the default family: putting there needs no third argument

_MB = 1024 * 1024


def open_database(path: Path, *, log_folder: str = "", compacts: bool = True, skips_damage: bool = False) -> Rdict:
    """With a folder for RocksDB's own log, the database is only read, and its folder not changed.

    A damaged record of the log of writes is its end, unless it is skipped.
    """
    options, access = _database_options(), AccessType.read_write()
    state_options = _state_options()
    if log_folder:
        options.create_if_missing(False)
        options.set_db_log_dir(log_folder)
        access = AccessType.read_only(False)  # the log of writes is read into memory
    if skips_damage:
        options.set_wal_recovery_mode(DBRecoveryMode.skip_any_corrupted_record())
    if not compacts:
        for each in (options, state_options):
            each.set_disable_auto_compactions(True)  # writes are then not slowed by many files either
    try:
        return Rdict(str(path), options, column_families={STATE_FAMILY: state_options}, access_type=access)
    except Exception as error:
        raise problem_of(error, path) from error


def _database_options() -> Options:
    """Options of the whole database, and of the default family, which holds the entries.

    For low CPU first, because clients share the machine. Compared with benchmarks/storage.py on two cores: compression,
    recycling of logs, sizes of memtable and block, compaction trigger. The others are reasoned, not measured.
    """
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.create_missing_column_families(True)
    options.set_max_background_jobs(2)  # one flush, one compaction: the loop needs the other core
    options.set_recycle_log_file_num(3)  # a log written before needs no new blocks: cheaper fsync, no slow unlink
    options.set_max_total_wal_size(128 * _MB)  # bounds the recovery after a crash; else rare state pins old logs
    options.set_bytes_per_sync(_MB)  # a flushed file reaches the disk steadily, not in one burst that delays fsyncs
    options.set_max_open_files(512)  # opening reads few files, however many there are
    options.set_skip_stats_update_on_db_open(True)  # opening must not read every file
    options.set_keep_log_file_num(3)  # RocksDB's own log, one per start
    options.set_max_log_file_size(4 * _MB)
    options.set_stats_dump_period_sec(0)  # not read there
    options.set_stats_persist_period_sec(0)
    options.set_write_buffer_size(48 * _MB)  # larger files cost less compaction with many topics, smaller less memory
    options.set_max_write_buffer_number(3)  # two may wait for a slow disk before writers do: 144 MB at most
    options.set_level_zero_file_num_compaction_trigger(8)  # entries are read once and deleted by range: compact late
    options.set_level_zero_slowdown_writes_trigger(40)  # a slowed write sleeps with the GIL held
    options.set_level_zero_stop_writes_trigger(60)
    options.set_max_bytes_for_level_base(384 * _MB)  # what level 0 holds when it is compacted
    options.set_target_file_size_base(48 * _MB)
    _set_tables(options, block_size=32 * 1024, cache_size=16 * _MB)  # long scans: fewer index entries
    return options


def _state_options() -> Options:
    """Options of the state family: few keys that live, most of them overwritten or deleted soon."""
    options = Options(raw_mode=True)
    options.set_write_buffer_size(8 * _MB)  # small: deleted keys stay in the way of scans until they are flushed
    options.set_max_write_buffer_number(3)
    options.set_level_zero_slowdown_writes_trigger(40)  # as above
    options.set_level_zero_stop_writes_trigger(60)
    options.set_max_bytes_for_level_base(64 * _MB)
    options.set_target_file_size_base(16 * _MB)
    options.add_compact_on_deletion_collector_factory(1024, 512, 0.5)  # a file half of deletions is rewritten at once
    _set_tables(options, block_size=8 * 1024, cache_size=8 * _MB)  # single keys are read, not long ranges
    return options


def _set_tables(options: Options, *, block_size: int, cache_size: int) -> None:
    options.set_compression_type(DBCompressionType.lz4())  # costs the CPU that writing fewer pages saves
    tables = BlockBasedOptions()
    tables.set_block_size(block_size)
    tables.set_block_cache(Cache(cache_size))  # small: the kernel caches the files
    options.set_block_based_table_factory(tables)
