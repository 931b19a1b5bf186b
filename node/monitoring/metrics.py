"""The node's numbers in Prometheus' text format.

The problem: a counter that is kept for a scraper costs every event; a scrape that walks a thousand partitions stalls
the loop. The rules: nothing is counted here, all is read off the parts when a scrape asks; what needs the loop's data
is copied on the loop in one pass, and rendered in a worker thread. Rejected: prometheus_client's own counters and HTTP
server: a lock per event, and a second thread that reads what the loop changes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from node.monitoring.group_lag import Led, group_lags
from node.monitoring.health import Health
from node.monitoring.move_metrics import move_metrics, planned_metrics
from node.monitoring.node_parts import NodeParts

CONTENT_TYPE = CONTENT_TYPE_LATEST

LISTENER_COUNTERS = (
    ("connections_total", "Counts AMQP connections that the socket accepted."),
    ("connections_refused", "Counts connections that were turned away: at the limit, or as the node stopped."),
    ("links_total", "Counts links that were attached."),
    ("events_in", "Counts events that came from producers."),
    ("bytes_in", "Counts the bytes of events that came from producers."),
    ("events_turned_down", "Counts events that came and were not accepted."),
    ("events_out", "Counts events that were delivered to consumers."),
    ("bytes_out", "Counts the bytes of events that were delivered to consumers."),
)
LISTENER_GAUGES = (
    ("connections_open", "Tells how many AMQP connections there are."),
    ("links_open", "Tells how many links there are."),
)
STORAGE = {
    "journal_bytes": "Tells how large the segments of the write-ahead log are.",
    "journal_segments": "Tells how many segments the write-ahead log has.",
    "journal_live_bytes": "Tells how much of the write-ahead log is needed.",
    "table_bytes": "Tells how large the tables beside the write-ahead log are.",
    "memory_bytes": "Tells how much those tables hold in memory.",
    "background_errors": "Tells how many errors RocksDB met in the background.",
    "free_bytes": "Tells how much of the disk is free.",
}


class _Copied(Collector):
    def __init__(self, families: Sequence[Metric]) -> None:
        self._families = families

    def collect(self) -> Iterable[Metric]:
        return self._families


class Metrics:
    def __init__(self, parts: NodeParts, health: Health) -> None:
        self._parts = parts
        self._health = health

    def copy(self, now_s: float) -> list[Metric]:
        """Copy the present numbers. Runs on the loop."""
        mine = [*self._node(now_s), *self._listeners(), *self._partitions(), *group_lags(self._led())]
        mine += [*self._transactions(), *move_metrics(self._parts), *planned_metrics(self._parts)]
        return [*mine, *self._peers(), *self._loop_and_disk()]

    @staticmethod
    def render(families: Sequence[Metric]) -> bytes:
        """Render the copied numbers. Runs in any thread."""
        registry = CollectorRegistry()
        registry.register(_Copied(families))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def _node(self, now_s: float) -> Iterator[Metric]:
        parts = self._parts
        info = GaugeMetricFamily(
            "holdfast_node_info", "Is 1; the labels tell what runs here.", labels=["cluster", "node", "version"]
        )
        info.add_metric([parts.cluster, str(parts.node_id), parts.version], 1)
        yield info
        ready = all(check.ok for check in self._health.ready(now_s))
        yield _gauge("holdfast_ready", "Is 1 while clients can be sent here.", ready)
        yield _gauge(
            "holdfast_disk_full", "Is 1 while events are refused for lack of disk.", not self._health.room().ok
        )
        yield _gauge("holdfast_draining", "Is 1 while leaderships are moved away.", parts.drain.active)
        yield _gauge(
            "holdfast_metadata_leader",
            "Tells which node leads the metadata group; 0 is none.",
            parts.metadata.leader or 0,
        )
        yield _gauge("holdfast_metadata_term", "Tells the term of the metadata group.", parts.metadata.term)
        yield _gauge(
            "holdfast_partitions_without_leader",
            "Tells how many partitions of all logs have no leader that this node knows.",
            len(parts.partitions_without_leader()),
        )

    def _listeners(self) -> Iterator[Metric]:
        held = next((listener.accounts.node.held for listener in self._parts.listeners), 0)
        yield _gauge(
            "holdfast_listener_held_bytes",
            "Tells how much, as reckoned, the peers of all listeners make this node hold.",
            held,
        )
        for field, text in LISTENER_COUNTERS:
            name = field.removesuffix("_total")
            counter = CounterMetricFamily(f"holdfast_listener_{name}", text, labels=["listener"])
            for listener in self._parts.listeners:
                counter.add_metric([listener.config.name], getattr(listener.counters, field))
            yield counter
        for field, text in LISTENER_GAUGES:
            gauge = GaugeMetricFamily(f"holdfast_listener_{field}", text, labels=["listener"])
            for listener in self._parts.listeners:
                gauge.add_metric([listener.config.name], getattr(listener.counters, field))
            yield gauge
        for field, text in (
            ("unanswered_bytes", "Tells how much was received and is not yet replicated."),
            ("output_bytes", "Tells how much is to be sent and is not yet."),
        ):
            gauge = GaugeMetricFamily(f"holdfast_listener_{field}", text, labels=["listener"])
            for listener in self._parts.listeners:
                gauge.add_metric([listener.config.name], getattr(listener, field))
            yield gauge

    def _partitions(self) -> Iterator[Metric]:
        labels = ["log", "partition"]
        leads = GaugeMetricFamily(
            "holdfast_partition_leader", "Is 1 while this node leads the partition.", labels=labels
        )
        term = GaugeMetricFamily("holdfast_partition_term", "Tells the partition's term.", labels=labels)
        first = GaugeMetricFamily(
            "holdfast_partition_start_offset", "Tells the offset of the oldest event kept.", labels=labels
        )
        following = CounterMetricFamily(
            "holdfast_partition_events", "Counts the events ever stored: the next offset.", labels=labels
        )
        size = GaugeMetricFamily("holdfast_partition_bytes", "Tells how large the events kept are.", labels=labels)
        unapplied = GaugeMetricFamily(
            "holdfast_partition_unapplied_entries",
            "Tells how many entries are committed and not yet applied.",
            labels=labels,
        )
        lag = GaugeMetricFamily(
            "holdfast_replica_lag_entries", "Tells, at the leader, how many committed entries a replica lacks.",
            labels=[*labels, "replica"],
        )  # fmt: skip
        text = "Tells, at the leader, how many transactions are open."
        open_here = GaugeMetricFamily("holdfast_partition_open_transactions", text, labels=labels)
        text = "Tells, at the leader, how many events committed readers wait for: those from the last stable offset on."
        unstable = GaugeMetricFamily("holdfast_partition_unstable_events", text, labels=labels)
        text = "Tells how many stretches have events of transactions rolled back; beyond 100,000 no transaction writes."
        aborted = GaugeMetricFamily("holdfast_partition_aborted_ranges", text, labels=labels)
        for replica in self._parts.replicas.all_open():
            found = self._parts.view.group(replica.group_id)
            group = self._parts.multiraft.groups.get(replica.group_id)
            if found is None or group is None:
                continue
            key = [found[0].name, found[1].name]
            info = replica.info_now()
            leads.add_metric(key, 1 if group.is_leader else 0)
            term.add_metric(key, group.term)
            first.add_metric(key, replica.start_offset)
            following.add_metric(key, info.next_offset)
            size.add_metric(key, info.bytes)
            aborted.add_metric(key, info.aborted_transactions)
            unapplied.add_metric(key, max(0, group.commit_index - group.applied_index))
            if group.is_leader:
                for node, (_, lacks) in self._parts.followers(group).items():
                    lag.add_metric([*key, str(node)], lacks)
                open_here.add_metric(key, info.open_transactions)
                unstable.add_metric(key, info.next_offset - info.stable_offset)
        yield from (leads, term, first, following, size, unapplied, lag, open_here, unstable, aborted)

    def _led(self) -> Iterator[Led]:
        for replica in self._parts.replicas.all_open():
            found = self._parts.view.group(replica.group_id)
            if found is not None and replica.is_leader:
                yield found[0].name, found[1].name, replica

    def _transactions(self) -> Iterator[Metric]:
        ids = ongoing = ending = groups = oldest_ms = 0
        for coordinator in self._parts.replicas.coordinators():
            if coordinator.is_leader:
                known, under_way, decided = coordinator.transactions()
                ids, ongoing, ending = ids + known, ongoing + under_way, ending + decided
                open_groups, member_ms = coordinator.groups()
                groups, oldest_ms = groups + open_groups, max(oldest_ms, member_ms)
        yield _gauge(
            "holdfast_transactional_ids",
            "Tells how many transactional ids the coordinators led by this node know.",
            ids,
        )
        yield _gauge("holdfast_transactions_ongoing", "Tells how many transactions are begun and not decided.", ongoing)
        yield _gauge(
            "holdfast_transactions_ending",
            "Tells how many transactions are decided while some partition lacks its marker.",
            ending,
        )
        yield _gauge(
            "holdfast_transaction_groups_open",
            "Tells how many batches the coordinators led by this node have open.",
            groups,
        )
        text = "Tells how old the oldest undecided member of a batch is: so long committed readers may have waited."
        yield _gauge("holdfast_transaction_groups_oldest_member_seconds", text, oldest_ms / 1000)

    def _peers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("holdfast_peer_up", "Is 1 while the other node is connected both ways.", labels=["peer"])
        backlog = GaugeMetricFamily(
            "holdfast_peer_backlog_bytes", "Tells how much waits to be sent to the other node.", labels=["peer"]
        )
        dropped = CounterMetricFamily(
            "holdfast_peer_dropped_messages",
            "Counts messages to the other node that were dropped; Raft sends them again.",
            labels=["peer"],
        )
        for node, state in self._parts.network.status().items():
            up.add_metric([str(node)], 1 if state["up"] else 0)
            backlog.add_metric([str(node)], state["backlog_bytes"])
            dropped.add_metric([str(node)], state["dropped_messages"])
        yield from (up, backlog, dropped)
        multiraft = self._parts.multiraft
        offset_s = self._parts.clock.offset_ms() / 1000
        yield _gauge(
            "holdfast_clock_offset_seconds", "Tells how far this node's clock is from the cluster's time.", offset_s
        )
        text = "Tells how many Raft groups this node does nothing more with."
        yield _gauge("holdfast_groups_quarantined", text, len(multiraft.quarantined))
        quiet = sum(group.is_quiet for group in multiraft.groups.values())
        yield _gauge(
            "holdfast_groups_quiet",
            "Tells how many Raft groups have no news, so that heartbeats of nodes speak for them.",
            quiet,
        )
        refused = sum(group.refused_messages for group in multiraft.groups.values())
        yield _counter(
            "holdfast_refused_messages",
            "Counts messages of peers that were refused for values that cannot be.",
            refused,
        )

    def _loop_and_disk(self) -> Iterator[Metric]:
        loop = self._parts.loop
        yield _counter("holdfast_turns", "Counts turns of the Raft loop.", loop.turns)
        yield _counter("holdfast_syncs", "Counts turns that waited for the disk.", loop.syncs)
        yield _counter("holdfast_turn_seconds", "Counts the time that turns took, syncs included.", loop.turns_s)
        text = "Tells the longest turn of the event loop in the last half minute or more."
        watch = self._parts.watch
        yield _gauge("holdfast_loop_longest_turn_seconds", text, watch.longest_s)
        yield _gauge(
            "holdfast_loop_longest_turn_ever_seconds",
            "Tells the longest turn of the event loop since the start.",
            watch.longest_ever_s,
        )
        yield _counter(
            "holdfast_turn_stalls", "Counts turns that were long enough to endanger leaderships.", loop.stalls
        )
        stats = self._parts.disk.stats()
        for name, text in STORAGE.items():
            yield _gauge(f"holdfast_storage_{name}", text, stats[name])


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))
