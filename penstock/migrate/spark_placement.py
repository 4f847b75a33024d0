"""The placement of a running query's bins in Spark, read and changed.

Everything here is private to Spark and therefore kept in this one file; seen to work on Spark 4.3 with
RocksDB and HDFS-backed stores. Spark's own coordinator decides where a stateful task runs, by who last
reported to hold its store. Reporting another executor moves the bin: from the next batch on its task runs
there and loads the state from the checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from penstock.dataflow.moves import Bin
from penstock.observe.spark_status import RunningQuery, java_context, spark_errors

_LOCALITY_KEYS = ("spark.locality.wait", "spark.locality.wait.process", "spark.locality.wait.node")
_SNAPSHOT_FILE = re.compile(r"^(\d+)(?:_[^.]*)?\.(?:zip|snapshot)$")
_CHANGE_FILE = re.compile(r"^(\d+)(?:_[^.]*)?\.(?:changelog|delta)$")
_MARK_STEP = 1 << 40
"""Further apart than any lag that Spark is told to tolerate, and far above any real version."""


@dataclass(frozen=True, slots=True)
class StateStage:
    """One stage with state: all stores of its operators, which only move together.

    `operator` is the lowest id of its operators, by which its bins are called.
    """

    query: str
    run: str
    operator: int
    stores: tuple[tuple[int, str], ...]
    partitions: int
    root: str

    def bins(self) -> tuple[Bin, ...]:
        """Return all bins of the stage."""
        return tuple(Bin(self.query, self.operator, number) for number in range(self.partitions))


@dataclass(frozen=True, slots=True)
class StoredSize:
    """The size of a bin in the checkpoint: bytes to load, and the version of the newest snapshot.

    `on_demand`: whether its kind of store uploads a snapshot when asked.
    """

    bytes: int = 0
    snapshot: int | None = None
    on_demand: bool = True


class SparkPlacement:
    """Talks to the coordinator of state stores of one application."""

    def __init__(self, spark: SparkSession) -> None:
        with spark_errors("opening its state store coordinator"):
            jvm: Any = spark._jvm
            self._jvm = jvm
            self._context: Any = java_context(spark)
            manager = spark._jsparkSession.sessionState().streamingQueryManager()
            self._coordinator: Any = manager.stateStoreCoordinator()
            convert: Any = jvm.org.apache.spark.api.python.PythonUtils
            self._nobody: Any = convert.toSeq(jvm.java.util.ArrayList())
            self._asking = _bind_location(jvm, self._coordinator)
            # each name after `jvm` is a question to the JVM, so they are resolved once
            state = jvm.org.apache.spark.sql.execution.streaming.state
            self._store_class, self._provider_class = state.StateStoreId, state.StateStoreProviderId
        self._ids: dict[tuple[str, int, int, str], Any] = {}
        self._lists: dict[tuple[str, int], Any] = {}
        self._runs: dict[str, Any] = {}
        self._marks: dict[str, int] = {}
        self._waits: dict[str, str | None] = {}

    def stages(self, query: RunningQuery) -> tuple[StateStage, ...]:
        """Find the stages with state of the query's newest batch; empty before the first one."""
        with spark_errors("reading the stateful operators of a query"):
            execution = query.execution.lastExecution()
            if execution is None:
                return ()
            found = list(_find_stateful(execution.executedPlan(), [0], 0))
        return _group_by_stage(query, found)

    def locations(self, stage: StateStage) -> dict[Bin, str]:
        """Ask who hosts each bin: where its last task ran, or, once it was placed, where the next one will.

        An executor reports at each access, so a placement that its task did not follow is seen to be gone.
        """
        with spark_errors("asking where state is"):
            answers = self._jvm.java.util.ArrayList(self._list_ids(stage))
            answers.replaceAll(self._asking)
            hosts = _read_locations(str(answers.toString()))
        return {bin_: host for bin_, host in zip(stage.bins(), hosts, strict=True) if host is not None}

    def place(self, stage: StateStage, bin_: Bin, host: str, executor: str) -> None:
        """Let the bin's next task run on this executor."""
        with spark_errors(f"moving bin {bin_}"):
            for operator, store in stage.stores:
                identity = self._store_id(stage, operator, bin_.partition, store)
                self._coordinator.reportActiveInstance(identity, host, executor, self._nobody)

    def ask_for_snapshots(self, stages: Iterable[StateStage], bins: Iterable[Bin]) -> None:
        """Let the next batch upload snapshots of these bins and of no others.

        Spark forces an upload where a store's newest snapshot lags far behind. So all stores but the chosen
        are reported to have a snapshot of the far future, and then the laggards are asked for. Spark keeps
        the highest report, so each time goes one mark further. The reports serve nothing but this lag.
        """
        chosen = set(bins)
        known = list(stages)
        with spark_errors("asking for snapshots"):
            mark = self._marks[known[0].run] = self._marks.get(known[0].run, 0) + _MARK_STEP
            for stage in known:
                for bin_ in stage.bins():
                    if bin_ not in chosen:
                        for operator, store in stage.stores:
                            identity = self._store_id(stage, operator, bin_.partition, store)
                            self._coordinator.snapshotUploaded(identity, mark, 0)
            run = self._jvm.java.util.UUID.fromString(known[0].run)
            self._coordinator.logLaggingStateStores(run, mark, True)

    def measure_stored(self, stage: StateStage, bin_: Bin) -> StoredSize:
        """Measure what lies in the checkpoint for this bin."""
        sizes = []
        with spark_errors("listing state files"):
            for operator, store in stage.stores:
                folder = f"{stage.root}/{operator}/{bin_.partition}"
                sizes.append(
                    _measure_files(self._list_files(folder if store == "default" else f"{folder}/{store}"))
                )
        snapshots = [size.snapshot for size in sizes]
        oldest = None if None in snapshots else min(one for one in snapshots if one is not None)
        return StoredSize(sum(size.bytes for size in sizes), oldest, all(size.on_demand for size in sizes))

    def hold_placement(self, seconds: float) -> None:
        """Let a task wait at least so long for its own executor; with 0 s it takes any, and state is lost.

        Spark reads this for each stage anew. What was set before comes back with `release_placement`.
        """
        with spark_errors("setting spark.locality.wait"):
            conf = self._context.conf()
            for key in _LOCALITY_KEYS:
                before = str(conf.get(key)) if conf.contains(key) else None
                fallback = conf.get(_LOCALITY_KEYS[0], "3s")
                held = self._jvm.org.apache.spark.network.util.JavaUtils.timeStringAsMs(before or fallback)
                if held < seconds * 1000:
                    self._waits.setdefault(key, before)
                    conf.set(key, f"{round(seconds * 1000)}ms")

    def release_placement(self) -> None:
        """Set `spark.locality.wait` back to what the user had."""
        with spark_errors("setting spark.locality.wait back"):
            for key, before in self._waits.items():
                if before is None:
                    self._context.conf().remove(key)
                else:
                    self._context.conf().set(key, before)
        self._waits = {}

    def _list_files(self, folder: str) -> dict[str, int]:
        """List file names with their bytes; tables of RocksDB lie one folder deeper."""
        path = self._jvm.org.apache.hadoop.fs.Path(folder)
        system = path.getFileSystem(self._context.hadoopConfiguration())
        if not system.exists(path):
            return {}
        files: dict[str, int] = {}
        for entry in system.listStatus(path):
            name = str(entry.getPath().getName())
            if entry.isDirectory():
                inner = system.listStatus(entry.getPath())
                files[name] = sum(int(one.getLen()) for one in inner)
            else:
                files[name] = int(entry.getLen())
        return files

    def _store_id(self, stage: StateStage, operator: int, partition: int, store: str) -> Any:
        key = (stage.run, operator, partition, store)
        if key not in self._ids:
            if stage.run not in self._runs:
                self._runs[stage.run] = self._jvm.java.util.UUID.fromString(stage.run)
            within = self._store_class(stage.root, operator, partition, store)
            self._ids[key] = self._provider_class(within, self._runs[stage.run])
        return self._ids[key]

    def _list_ids(self, stage: StateStage) -> Any:
        """Return a list in the JVM with the first store of each bin: the others are at the same place."""
        key = (stage.run, stage.operator)
        if key not in self._lists:
            operator, store = stage.stores[0]
            ids = self._jvm.java.util.ArrayList()
            for partition in range(stage.partitions):
                ids.add(self._store_id(stage, operator, partition, store))
            self._lists[key] = ids
        return self._lists[key]


def _bind_location(jvm: Any, coordinator: Any) -> Any:
    """Return the coordinator's `getLocation` as an operator on the elements of a Java list.

    So the JVM asks for all bins in one call from here. All are asked for in the moment between two batches,
    and one by one a thousand took 0.36 s, against 0.04 s.
    """
    kind = coordinator.getClass()
    loader, invoke = kind.getClassLoader(), jvm.java.lang.invoke
    store = loader.loadClass("org.apache.spark.sql.execution.streaming.state.StateStoreProviderId")
    signature = invoke.MethodType.methodType(loader.loadClass("scala.Option"), store)
    location = invoke.MethodHandles.publicLookup().findVirtual(kind, "getLocation", signature)
    operator = loader.loadClass("java.util.function.UnaryOperator")
    return invoke.MethodHandleProxies.asInterfaceInstance(operator, location.bindTo(coordinator))


def _read_locations(text: str) -> list[str | None]:
    """Read the executor ids of a Java list of locations: `[Some(executor_host_3), None]`."""
    answers = text[1:-1].split(", ") if len(text) > 2 else []
    return [None if one == "None" else one[:-1].rsplit("_", 1)[1] for one in answers]


def _measure_files(files: Mapping[str, int]) -> StoredSize:
    """Add up what a new worker has to read: the newest snapshot and the changes after it.

    RocksDB keeps its tables beside the snapshots, and old ones stay a while: an upper bound, then.
    """
    snapshots = [int(found.group(1)) for name in files if (found := _SNAPSHOT_FILE.match(name))]
    newest = max(snapshots, default=None)
    size = 0
    for name, length in files.items():
        snapshot, change = _SNAPSHOT_FILE.match(name), _CHANGE_FILE.match(name)
        if change:
            size += length if newest is None or int(change.group(1)) > newest else 0
        elif snapshot:
            size += length if int(snapshot.group(1)) == newest else 0
        elif not name.startswith(("_", ".")) and "." not in name:
            size += length
    # the HDFS-backed store writes deltas, and snapshots by its own schedule alone
    on_demand = not any(name.endswith((".delta", ".snapshot")) for name in files)
    return StoredSize(size, newest, on_demand)


@dataclass(frozen=True, slots=True)
class _StatefulNode:
    """A node of a query's plan that keeps state, with its stage and stores."""

    stage: int
    operator: int
    partitions: int
    root: str
    stores: tuple[str, ...]


def _find_stateful(node: Any, counter: list[int], stage: int) -> Iterator[_StatefulNode]:
    """Find the nodes with state, each with the number of its stage: an exchange begins another."""
    if "Exchange" in str(node.getClass().getSimpleName()):
        counter[0] += 1
        stage = counter[0]
    info = _call_if_known(node, "stateInfo")
    if info is not None and info.isDefined():
        yield _describe_node(node, info.get(), stage)
    children = node.children()
    for number in range(children.size()):
        yield from _find_stateful(children.apply(number), counter, stage)


def _describe_node(node: Any, info: Any, stage: int) -> _StatefulNode:
    names = _call_if_known(node, "stateStoreNames")
    stores = tuple(str(names.apply(number)) for number in range(names.size())) if names else ()
    return _StatefulNode(
        stage, int(info.operatorId()), int(info.numPartitions()), str(info.checkpointLocation()), stores
    )


def _call_if_known(node: Any, method: str) -> Any:
    """Call a method of the node; None if it has no such method, which only the call can tell."""
    try:
        return getattr(node, method)()
    except Py4JError as error:
        if "does not exist" in str(error):
            return None
        raise


def _group_by_stage(query: RunningQuery, found: Iterable[_StatefulNode]) -> tuple[StateStage, ...]:
    by_stage: dict[int, list[_StatefulNode]] = {}
    for one in found:
        by_stage.setdefault(one.stage, []).append(one)
    stages = []
    for ones in by_stage.values():
        # the node that only reads the state does not name its stores; the one that writes it does
        stores = tuple(sorted({(one.operator, store) for one in ones for store in one.stores}))
        if stores:
            first = min(ones, key=lambda one: one.operator)
            stages.append(
                StateStage(query.query_id, query.run_id, first.operator, stores, first.partitions, first.root)
            )
    return tuple(sorted(stages, key=lambda stage: stage.operator))
