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

from node.monitoring.health import Health
from node.monitoring.node_parts import NodeParts

CONTENT_TYPE = CONTENT_TYPE_LATEST

LISTENER_COUNTERS = (
    ("connections_total", "AMQP connections accepted by the socket"),
    ("connections_refused", "connections turned away: the limit, or the node stops"),
    ("links_total", "links attached"),
    ("events_in", "events received from producers"),
    ("bytes_in", "bytes of those events"),
    ("events_turned_down", "events received and not accepted"),
    ("events_out", "events delivered to consumers"),
    ("bytes_out", "bytes of those events"),
)
LISTENER_GAUGES = (("connections_open", "AMQP connections now"), ("links_open", "links now"))


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
        """On the loop: the numbers as they are now."""
        mine = [*self._node(now_s), *self._listeners(), *self._partitions(), *self._transactions()]
        return [*mine, *self._peers(), *self._loop_and_disk()]

    @staticmethod
    def render(families: Sequence[Metric]) -> bytes:
        """Anywhere."""
        registry = CollectorRegistry()
        registry.register(_Copied(families))
        ProcessCollector(registry=registry)
        return generate_latest(registry)

    def _node(self, now_s: float) -> Iterator[Metric]:
        parts = self._parts
        info = GaugeMetricFamily("holdfast_node_info", "What runs here", labels=["cluster", "node", "version"])
        info.add_metric([parts.cluster, str(parts.node_id), parts.version], 1)
        yield info
        ready = all(check.ok for check in self._health.ready(now_s))
        yield _gauge("holdfast_ready", "1 when clients can be sent here", ready)
        yield _gauge("holdfast_disk_full", "1 while events are refused for lack of disk", not self._health.room().ok)
        yield _gauge("holdfast_draining", "1 while leaderships are moved away", parts.drain.active)
        yield _gauge(
            "holdfast_metadata_leader", "Node that leads the metadata group, 0: none", parts.metadata.leader or 0
        )
        yield _gauge("holdfast_metadata_term", "Term of the metadata group", parts.metadata.term)
        yield _gauge(
            "holdfast_partitions_without_leader",
            "Of all logs, as this node knows",
            len(parts.partitions_without_leader()),
        )

    def _listeners(self) -> Iterator[Metric]:
        held = next((listener.accounts.node.held for listener in self._parts.listeners), 0)
        yield _gauge("holdfast_listener_held_bytes", "Reckoned: what peers of all listeners make this node hold", held)
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
        for field, text in (("unanswered_bytes", "received, not yet replicated"), ("output_bytes", "not yet sent")):
            gauge = GaugeMetricFamily(f"holdfast_listener_{field}", text, labels=["listener"])
            for listener in self._parts.listeners:
                gauge.add_metric([listener.config.name], getattr(listener, field))
            yield gauge

    def _partitions(self) -> Iterator[Metric]:
        labels = ["log", "partition"]
        leads = GaugeMetricFamily("holdfast_partition_leader", "1 when this node leads it", labels=labels)
        term = GaugeMetricFamily("holdfast_partition_term", "Raft term", labels=labels)
        first = GaugeMetricFamily("holdfast_partition_start_offset", "Oldest event kept", labels=labels)
        following = CounterMetricFamily("holdfast_partition_events", "Events ever stored (next offset)", labels=labels)
        size = GaugeMetricFamily("holdfast_partition_bytes", "Bytes of the events kept", labels=labels)
        unapplied = GaugeMetricFamily("holdfast_partition_unapplied_entries", "Committed, not applied", labels=labels)
        lag = GaugeMetricFamily(
            "holdfast_replica_lag_entries", "At the leader: committed entries that a replica lacks",
            labels=[*labels, "replica"],
        )  # fmt: skip
        text = "At the leader: transactions that are open"
        open_here = GaugeMetricFamily("holdfast_partition_open_transactions", text, labels=labels)
        text = "At the leader: events from the last stable offset on, which committed readers wait for"
        unstable = GaugeMetricFamily("holdfast_partition_unstable_events", text, labels=labels)
        text = "Stretches with events of transactions that were rolled back; beyond 100,000 no transaction writes"
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

    def _transactions(self) -> Iterator[Metric]:
        ids = ongoing = ending = groups = oldest_ms = 0
        for coordinator in self._parts.replicas.coordinators():
            if coordinator.is_leader:
                known, under_way, decided = coordinator.transactions()
                ids, ongoing, ending = ids + known, ongoing + under_way, ending + decided
                open_groups, member_ms = coordinator.groups()
                groups, oldest_ms = groups + open_groups, max(oldest_ms, member_ms)
        yield _gauge("holdfast_transactional_ids", "That coordinators led by this node know", ids)
        yield _gauge("holdfast_transactions_ongoing", "Begun, and not decided", ongoing)
        yield _gauge("holdfast_transactions_ending", "Decided, and some partition lacks its marker", ending)
        yield _gauge("holdfast_transaction_groups_open", "Batches that coordinators led by this node have open", groups)
        text = "Of their oldest member that is not decided: so long committed readers may have waited"
        yield _gauge("holdfast_transaction_groups_oldest_member_seconds", text, oldest_ms / 1000)

    def _peers(self) -> Iterator[Metric]:
        up = GaugeMetricFamily("holdfast_peer_up", "1 when the other node is connected both ways", labels=["peer"])
        backlog = GaugeMetricFamily("holdfast_peer_backlog_bytes", "Waiting to be sent to it", labels=["peer"])
        dropped = CounterMetricFamily("holdfast_peer_dropped_messages", "Raft sends them again", labels=["peer"])
        for node, state in self._parts.network.status().items():
            up.add_metric([str(node)], 1 if state["up"] else 0)
            backlog.add_metric([str(node)], state["backlog_bytes"])
            dropped.add_metric([str(node)], state["dropped_messages"])
        yield from (up, backlog, dropped)
        multiraft = self._parts.multiraft
        offset_s = self._parts.clock.offset_ms() / 1000
        yield _gauge("holdfast_clock_offset_seconds", "Of this node's clock from the cluster's time", offset_s)
        text = "Raft groups that this node does nothing more with"
        yield _gauge("holdfast_groups_quarantined", text, len(multiraft.quarantined))
        quiet = sum(group.is_quiet for group in multiraft.groups.values())
        yield _gauge("holdfast_groups_quiet", "Raft groups without news, which heartbeats of nodes speak for.", quiet)
        refused = sum(group.refused_messages for group in multiraft.groups.values())
        yield _counter("holdfast_refused_messages", "Of peers, for values that cannot be", refused)

    def _loop_and_disk(self) -> Iterator[Metric]:
        loop = self._parts.loop
        yield _counter("holdfast_turns", "Turns of the Raft loop", loop.turns)
        yield _counter("holdfast_syncs", "Turns that waited for the disk", loop.syncs)
        yield _counter("holdfast_turn_seconds", "Time spent in turns, syncs included", loop.turns_s)
        text = "Longest turn of the event loop in the last half minute or more"
        watch = self._parts.watch
        yield _gauge("holdfast_loop_longest_turn_seconds", text, watch.longest_s)
        yield _gauge("holdfast_loop_longest_turn_ever_seconds", "The same, since the start", watch.longest_ever_s)
        yield _counter("holdfast_turn_stalls", "Turns long enough to endanger leaderships", loop.stalls)
        for name, value in self._parts.disk.stats().items():
            yield _gauge(f"holdfast_storage_{name}", name.replace("_", " "), value)


def _gauge(name: str, text: str, value: float) -> Metric:
    return GaugeMetricFamily(name, text, value=float(value))


def _counter(name: str, text: str, value: float) -> Metric:
    return CounterMetricFamily(name, text, value=float(value))
