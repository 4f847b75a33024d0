"""An application and the cluster it runs on, as they are before anything has happened. Times are seconds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace


@dataclass(frozen=True, slots=True)
class Piece:
    """The work of one task; `failures` are the reasons with which its first attempts fail."""

    compute: float
    records: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    deserialise: float = 0.008
    fetch: float = 0.0
    collect: float = 0.0
    disk: float = 0.0
    spilled: int = 0
    write: float = 0.0
    commit: float = 0.0
    failures: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class StageWork:
    """The tasks of a stage, and the places of the stages before it in its job."""

    scope: str
    pieces: tuple[Piece, ...]
    parents: tuple[int, ...] = ()

    @property
    def is_scan(self) -> bool:
        """Whether it reads files; other stages read what earlier ones have shuffled."""
        return not self.parents

    def map_pieces(self, change: Callable[[Piece], Piece]) -> StageWork:
        """Return the stage with each of its tasks changed."""
        return replace(self, pieces=tuple(change(piece) for piece in self.pieces))


@dataclass(frozen=True, slots=True)
class JobWork:
    """A job with the driver's own work around it; `pause` is a person who thinks before asking for it."""

    stages: tuple[StageWork, ...]
    program: float = 0.5
    planning: float = 0.2
    after: float = 0.05
    pause: float = 0.0

    def map_stages(self, change: Callable[[StageWork], StageWork]) -> JobWork:
        """Return the job with each of its stages changed."""
        return replace(self, stages=tuple(change(stage) for stage in self.stages))


@dataclass(frozen=True, slots=True)
class BatchCosts:
    """The driver's work in a micro-batch beside its job, and how much longer the first batch takes."""

    offsets: float = 0.03
    offset_log: float = 0.05
    commit_log: float = 0.06
    cold: float = 0.0


@dataclass(frozen=True, slots=True)
class Machine:
    """An executor, when it is ready, and how many times slower its host is."""

    name: str
    host: str
    cores: int
    ready: float
    slowness: float = 1.0
    lost_at: float = float("inf")
    lost_because: str = ""


@dataclass(frozen=True, slots=True)
class DynamicAllocation:
    """Executors that come when tasks wait, twice as many each time, and go when they are idle."""

    least: int
    start_up: float
    idle_timeout: float = 60.0


@dataclass(frozen=True, slots=True)
class Scene:
    """An application on its cluster; with `batch` its jobs are those of a streaming query's micro-batches."""

    name: str
    jobs: tuple[JobWork, ...]
    machines: tuple[Machine, ...]
    launch_cost: float = 0.0015
    allocation: DynamicAllocation | None = None
    batch: BatchCosts | None = None
    trigger: float = 0.0
    properties: dict[str, str] = field(default_factory=dict)

    @property
    def slots(self) -> int:
        """The slots of all executors."""
        return sum(machine.cores for machine in self.machines)

    def map_jobs(self, change: Callable[[JobWork], JobWork]) -> Scene:
        """Return the scene with each of its jobs changed."""
        return replace(self, jobs=tuple(change(job) for job in self.jobs))

    def map_stages(self, change: Callable[[StageWork], StageWork]) -> Scene:
        """Return the scene with each stage changed."""
        return self.map_jobs(lambda job: job.map_stages(change))

    def map_pieces(self, change: Callable[[Piece], Piece]) -> Scene:
        """Return the scene with each task changed."""
        return self.map_stages(lambda stage: stage.map_pieces(change))
