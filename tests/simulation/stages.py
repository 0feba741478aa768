"""Stages: what one seed in four is about.

Chance alone rarely brings together what some mistakes need: a process that stops for hours between two requests while
all others go on, two who take the same part, local bytes beside mutations. So the cast of a stage is small, and what
matters there happens all the time. `seeds_of` gives the seeds of one stage, which no general seed is.
"""

from __future__ import annotations

from collections.abc import Mapping

from tests.simulation.actors import Follower, Reader
from tests.simulation.admins import Attacher, Borrower, Killer, Mutator, Surgeon
from tests.simulation.inserters import Caller, Inserter, Repeater, Rival, Streamer
from tests.simulation.keepers import Checkpointer, Collector, Inspector, Publisher
from tests.simulation.leaders import Contender, Desk, Hasty, Leader
from tests.simulation.movers import JointReader, Mover, Settler, Taker
from tests.simulation.nodes import Merger
from tests.simulation.planned import NodeThread, PlannedNode
from tests.simulation.rewriters import Rewriter
from tests.simulation.stage import Role, Stage, names, one, several

EVERY = 4
NAP_MAX = 12
"""Grace periods that a nap lasts at most."""
_INSERT = one("insert", Inserter)
_READER = one("reader", Reader)
_SWEEPERS = (one("gc 1", Collector), one("gc 2", Collector))
_SWEPT = {"history_retention_seconds": "0", "checkpoint_interval": "3"}
_LAGGING = {**_SWEPT, "history_retention_seconds": "9000"}
_VOLATILE = {"merge_upload_policy": "volatile"}


def _while_others_collect(stops: Mapping[str, float], *cast: Role, settings: Mapping[str, str] = _SWEPT) -> Stage:
    """The first of these sleeps; what it knows is merged, dropped and collected meanwhile."""
    return Stage((*cast, _INSERT, *_SWEEPERS), (cast[0][0],), stops, settings, leaps=0.3, preempt=0.05)


_THREADS = (one("worker", NodeThread, "node", "node"), one("node", NodeThread, "", "node"))
_WRITES = {"the reply to put": 0.5, "the reply to upload": 0.5, "the reply to create": 0.5}
STAGES: tuple[Stage, ...] = (
    _while_others_collect(_WRITES, one("stream", Streamer), one("insert b", Inserter, "insert")),
    _while_others_collect({**_WRITES, "put": 0.3}, one("insert b", Inserter), one("node", Merger)),
    # A quiet table, whose history lags behind: nothing but what was noted says what is too old.
    Stage((one("stream", Streamer), *_SWEEPERS), ("stream",), _WRITES, _LAGGING, leaps=0.3, preempt=0.05),
    _while_others_collect(_WRITES, one("admin", Borrower), one("node", Merger), one("admin 2", Surgeon)),
    _while_others_collect(
        {"the reply to put": 0.3}, one("publisher", Publisher), one("node", Merger), one("admin", Surgeon)
    ),
    _while_others_collect(
        {"the reply to list": 0.1}, one("fsck", Inspector), one("node", Merger), one("pub", Publisher)
    ),
    _while_others_collect(_WRITES, *_THREADS, settings={**_SWEPT, "merge_upload_policy": "direct"}),
    _while_others_collect(_WRITES, *_THREADS, settings={**_SWEPT, **_VOLATILE}),
    _while_others_collect(_WRITES, one("node", Merger), one("admin", Surgeon)),
    _while_others_collect(_WRITES, *several("caller", Caller, 3, "server", "server")),
    _while_others_collect(
        {**_WRITES, "the reply to delete": 0.5, "the reply to list": 0.03},
        *(one("gc 3", Collector), one("publisher", Publisher), one("node", Merger), one("admin", Borrower)),
    ),
    Stage(
        (_INSERT, one("publisher", Publisher), one("publisher 2", Publisher), one("admin", Surgeon)),
        ("publisher",),
        {"the reply to get": 0.5, "the reply to list": 0.5},
        preempt=0.02,
        naps=0.0,
    ),
    Stage(
        (_INSERT, one("publisher", Publisher), one("admin", Surgeon), one("node", Merger), *_SWEEPERS),
        leaps=0.3,
    ),
    Stage((_INSERT, *several("admin", Attacher, 3), one("reader", Reader)), preempt=0.4),
    Stage((_INSERT, one("node 1", Merger), one("node 2", Merger), one("admin", Mutator))),
    Stage(
        (_INSERT, one("real node", PlannedNode), one("node", Rewriter), one("admin", Mutator)),
        settings=_VOLATILE,
        preempt=0.4,
    ),
    Stage((_INSERT, *_THREADS, one("real node", PlannedNode)), settings=_VOLATILE, outages=0.05),
    Stage(
        (_INSERT, one("real node 1", PlannedNode), one("real node 2", PlannedNode)),
        settings=_VOLATILE,
        crash_rate=0.03,
        wrong_digits=True,
    ),
)
RARE_EVERY, RARE_AT = 64, 47
"""The seeds that are about one of these; no others, so that what other seeds find stays as it was."""
_CHECKPOINTERS = several("checkpoint", Checkpointer, 4)
RARE: tuple[Stage, ...] = (
    # Who was not told of a commit sends the same parts again, when history has just forgotten what became of them.
    Stage(
        (one("repeat", Repeater), one("repeat 2", Repeater), one("node", Merger), one("gc", Collector)),
        settings=_SWEPT,
        leaps=0.3,
        preempt=0.05,
    ),
    # A collector stands still before it lists, and a writer before it commits what was listed. History is kept for so
    # long that only what was noted says what is too old.
    Stage(
        (one("insert b", Inserter), one("insert c", Inserter), one("gc", Collector)),
        ("insert b", "insert c", "gc"),
        {"the reply to upload": 0.5, "the reply to put t/": 0.3, "list t": 0.5},
        {**_SWEPT, "history_retention_seconds": "90000"},
        naps=0.1,
        leaps=0.2,
        preempt=0.1,
    ),
    # Several write a checkpoint of the same version, or the hint that leads there, one of them long after it was cut.
    Stage(
        (*_CHECKPOINTERS, _INSERT, one("gc", Collector), one("reader", Reader)),
        names(_CHECKPOINTERS),
        {"put t/_log/": 0.3, "create t/_log/checkpoints/": 0.3},
        {**_SWEPT, "checkpoint_interval": "8"},
        naps=0.5,
        leaps=0.2,
        preempt=0.02,
    ),
)
LEADERS_AT = (6, 26, 54)
"""The seeds, of `RARE_EVERY`, that are about commits which pass through a leader."""
_LEADER = (
    one("leader", Leader, "", "leader"),
    *several("leader desk", Desk, 2, "leader", "leader"),
)
_SENDERS = several("insert", Hasty, 3)
_SLEEPY = ("leader", "leader desk 1", "leader desk 2")
LEADERS: tuple[Stage, ...] = (
    Stage((*_LEADER, *_SENDERS, one("reader", Reader)), leaps=0.01, fault_rate=0.01, preempt=0.1),
    # The leader stops for long: before it appends, before it answers, and while it holds a lock.
    Stage(
        (*_LEADER, *_SENDERS, one("admin", Surgeon)),
        _SLEEPY,
        {"the answer": 0.3, "create": 0.2, "the reply to create": 0.3},
        naps=0.1,
        leaps=0.01,
        fault_rate=0.01,
        preempt=0.05,
    ),
    Stage(
        (*_LEADER, _INSERT, one("stream", Streamer), one("node", Merger), *_SWEEPERS),
        _SLEEPY,
        {"the answer": 0.3, "the reply to create": 0.2},
        _SWEPT,
        naps=0.05,
        leaps=0.05,
        fault_rate=0.01,
        preempt=0.1,
    ),
    Stage(
        (
            *_LEADER,
            *several("caller", Caller, 3, "server", "server"),
            one("insert b", Hasty),
            one("admin", Surgeon),
        ),
        leaps=0.01,
        fault_rate=0.01,
        crash_rate=0.003,
        preempt=0.2,
    ),
    # Two who listen, and senders who ask the one or the other.
    Stage(
        (
            *_LEADER,
            one("other leader", Leader, "", "other leader"),
            one("other desk", Desk, "other leader", "other leader"),
            *_SENDERS,
        ),
        _SLEEPY,
        {"the answer": 0.2},
        naps=0.05,
        leaps=0.01,
        fault_rate=0.01,
        preempt=0.1,
    ),
)
SEGMENTS_AT = 46
"""The seeds, of `RARE_EVERY`, that are about segments of checkpoints."""
SMALL_EVERY, SMALL_AT = 7, 3
"""The seeds whose checkpoints have segments, small ones, whatever they are about."""
SEGMENTS: tuple[Stage, ...] = (
    Stage(
        (*_CHECKPOINTERS[:2], _INSERT, one("node", Merger), one("admin", Surgeon), *_SWEEPERS),
        ("checkpoint 1", "gc 1"),
        {"create t/_log/": 0.3, "the reply to get": 0.05, "the reply to list": 0.1},
        _SWEPT,
        naps=0.1,
        leaps=0.2,
        preempt=0.2,
    ),
    Stage(
        (_INSERT, one("insert b", Inserter), one("node", Merger), *_SWEEPERS, one("reader", Reader)),
        settings=_SWEPT,
        leaps=0.3,
    ),
)


CROWD_EVERY, CROWD_AT = 16, 13
"""The seeds in which appends take so long that writers meet all the time, and go by the intake."""
_CALLERS = several("caller", Caller, 3, "server", "server")
_RIVALS = several("insert", Rival, 4)
_SLEEPY = {"the reply to list t/_log/intake": 0.5, "the reply to put t/_log/intake": 0.3, "create t/_log": 0.3}
CROWDS: tuple[Stage, ...] = (
    Stage((*_RIVALS, *_CALLERS, one("node", Merger)), preempt=0.2, leaps=0.0, pace_s=4.0),
    Stage(
        (*_RIVALS, one("admin", Mutator), *_CALLERS),
        ("insert 1", "insert 2"),
        _SLEEPY,
        naps=0.05,
        leaps=0.0,
        pace_s=4.0,
    ),
    Stage((*_RIVALS, *_CALLERS, *_SWEEPERS), ("insert 1", "caller 1"), _SLEEPY, _SWEPT, leaps=0.05, pace_s=4.0),
    Stage((*_RIVALS, one("stream", Streamer), *_CALLERS), crash_rate=0.02, outages=0.01, leaps=0.0, pace_s=4.0),
)


_CUTS = {"put t/_log/checkpoints/": 0.5, "the reply to list t/_log": 0.1, "delete t/_log/checkpoints/": 0.7}
_COLLECTORS = several("gc", Collector, 3)
_FOLLOWERS = several("reader", Follower, 2)
_CONTENDERS = several("insert", Contender, 4)
_INSERTERS = several("insert", Inserter, 3)
ALONE: tuple[Stage, ...] = (
    # What a leader refuses is possible soon after, and messages arrive twice.
    Stage(
        (*_LEADER, *_CONTENDERS),
        names(_CONTENDERS),
        {"a message to": 0.9},
        naps=0.0,
        leaps=0.0,
        fault_rate=0.0,
        crash_rate=0.0,
        preempt=0.1,
        outages=0.0,
    ),
    # Collectors that stand still before they empty a checkpoint, in a log that is long for its checkpoints.
    Stage(
        (*_COLLECTORS, *_INSERTERS, one("reader", Reader)),
        ("gc 1",),
        _CUTS,
        _SWEPT,
        naps=0.5,
        leaps=0.05,
        fault_rate=0.0,
        preempt=0.02,
    ),
)
"""No general seed is about these: they came later."""
ALONE_SEGMENTS: tuple[Stage, ...] = (
    # Checkpoints under way while others sweep.
    Stage(
        (*_CHECKPOINTERS[:2], _INSERT, *_COLLECTORS),
        ("checkpoint 1", "checkpoint 2"),
        {"create t/_log/checkpoints/": 0.9, "the reply to create t/_log/checkpoints/": 0.5},
        _SWEPT,
        naps=0.0,
        leaps=0.15,
        preempt=0.05,
    ),
    # The same of those who seldom write one: in between others did, and merged segments.
    Stage(
        (*_CHECKPOINTERS[:1], *_INSERTERS, *_COLLECTORS),
        names(_INSERTERS),
        {"create t/_log/checkpoints/": 0.9, "the reply to list t/_log": 0.5},
        {**_SWEPT, "checkpoint_interval": "20"},
        naps=0.0,
        leaps=0.0,
        fault_rate=0.0,
        crash_rate=0.0,
        preempt=0.1,
        pace_s=200.0,
    ),
    # Who stands still for long finds segments gone that it had not read.
    Stage(
        (*several("reader", Reader, 3), *_INSERTERS, *_COLLECTORS[:2]),
        ("reader 1", "reader 2", "insert 1"),
        {"get t/_log/0": 0.3, "the reply to get t/_log/0": 0.3},
        _SWEPT,
        naps=0.5,
        leaps=0.2,
        fault_rate=0.0,
        preempt=0.1,
    ),
    # Sweeps that stand still between the listing and what was listed.
    Stage(
        (*_INSERTERS[:2], *_COLLECTORS),
        ("gc 1", "gc 2"),
        {"the reply to list t/_log/intake": 0.8},
        _SWEPT,
        naps=0.4,
        leaps=0.3,
        fault_rate=0.0,
        preempt=0.05,
    ),
    # Who follows the log for long, and reads seldom, finds what it has yet to read.
    Stage(
        (*_FOLLOWERS, *_INSERTERS, *_COLLECTORS[:2]),
        settings=_SWEPT,
        by_hash=True,
        leaps=0.0,
        fault_rate=0.0,
        crash_rate=0.0,
        preempt=0.05,
        pace_s=200.0,
    ),
)

MUTATIONS_AT = (20, 36, 57)
"""The seeds, of `RARE_EVERY`, that are about mutations."""
_MUTATORS = several("admin", Mutator, 2)
_KILLS = one("killer", Killer)
_NODES = several("real node", PlannedNode, 2)
_DIRECT = {"merge_upload_policy": "direct", "min_age_to_apply_mutations_seconds": "0"}
MUTATIONS: tuple[Stage, ...] = (
    # Merges to the store, rewrites and kills, all at once.
    Stage(
        (_INSERT, *several("node", Merger, 2), one("rewriter", Rewriter), *_MUTATORS, _READER), preempt=0.05, leaps=0.01
    ),
    Stage(
        (_INSERT, *_NODES, one("rewriter", Rewriter), *_MUTATORS, _KILLS, _READER),
        settings=_DIRECT,
        preempt=0.1,
        leaps=0.01,
    ),
    # Volatile parts are built while mutations come and are killed.
    Stage(
        (_INSERT, *_NODES, one("node", Merger), one("admin", Mutator), _KILLS, _READER),
        settings=_VOLATILE,
        preempt=0.1,
        leaps=0.0,
        pace_s=20.0,
    ),
    Stage(
        (_INSERT, *_THREADS, *_MUTATORS, one("real node", PlannedNode)),
        settings=_VOLATILE,
        crash_rate=0.01,
        preempt=0.1,
    ),
    # Who writes a mutation down stands still before its parts are in the log, and others merge, drop and collect.
    _while_others_collect(
        _WRITES, one("rewriter", Rewriter), one("node", Merger), one("admin", Mutator), one("surgeon", Surgeon)
    ),
    _while_others_collect(_WRITES, *_THREADS, one("admin", Mutator), _READER, settings={**_SWEPT, **_DIRECT}),
)
DETACHED: tuple[Stage, ...] = (
    # Parts that lack mutations go aside and come back, while others write these down, give them up, merge and collect.
    _while_others_collect(
        _WRITES, one("attacher", Attacher), one("admin", Mutator), one("rewriter", Rewriter), one("node", Merger)
    ),
    Stage((_INSERT, *several("attacher", Attacher, 2), one("admin", Mutator), one("rewriter", Rewriter)), preempt=0.2),
)

_MOVERS = several("mover", Mover, 2)
_JOINT = several("joint reader", JointReader, 2)
_DECIDES = {"create _txn": 0.3, "put _txn": 0.3, "the reply to create": 0.2, "create": 0.05}
TRANSACTIONS_AT = (22, 38)
"""The seeds, of `RARE_EVERY`, that are about transactions over several tables."""
TRANSACTIONS: tuple[Stage, ...] = (
    Stage((_INSERT, *_MOVERS, *_JOINT), leaps=0.0, pace_s=2.0, preempt=0.2),
    Stage(
        (_INSERT, one("insert b", Inserter), *_MOVERS, *_JOINT, one("node", Merger), one("admin", Mutator)),
        leaps=0.0,
        pace_s=2.0,
        preempt=0.3,
        crash_rate=0.01,
    ),
    # Coordinators stand still at any of their requests, while others give them up, collect and cut.
    Stage(
        (*_MOVERS, _INSERT, _JOINT[0], *_SWEEPERS),
        names(_MOVERS),
        _DECIDES,
        _SWEPT,
        naps=0.1,
        leaps=0.03,
        pace_s=2.0,
        preempt=0.1,
    ),
    Stage(
        (*_MOVERS, _INSERT, one("borrower", Borrower), *_JOINT, *_SWEEPERS, one("node", Merger)),
        names(_SWEEPERS),
        {"create": 0.2},
        _SWEPT,
        naps=0.1,
        leaps=0.15,
        pace_s=2.0,
        crash_rate=0.003,
    ),
    # Commits pass through a leader, and entries of transactions come with its answers.
    Stage(
        (*_LEADER, *_SENDERS, *several("mover", Settler, 2), _JOINT[0]),
        leaps=0.01,
        fault_rate=0.01,
        crash_rate=0.003,
        preempt=0.1,
        pace_s=3.0,
    ),
    # So much time goes by that coordinators are given up all the time, while they decide.
    Stage((*_MOVERS, *several("insert", Inserter, 3), _JOINT[0]), leaps=0.0, pace_s=60.0, preempt=0.4),
    # The same parts go to a table again and again, while its collector is about to let go of them.
    Stage(
        (*several("taker", Taker, 2), _INSERT, *_SWEEPERS, _JOINT[0]),
        names(_SWEEPERS),
        {"create": 0.5},
        _SWEPT,
        naps=0.15,
        leaps=0.15,
        pace_s=2.0,
    ),
    # A coordinator sleeps between the entries of two tables, until nobody knows any more that it was given up.
    Stage(
        (*_MOVERS, *several("insert", Inserter, 2), *_SWEEPERS),
        names(_MOVERS),
        {"create": 0.3},
        _SWEPT,
        naps=0.2,
        leaps=0.2,
        pace_s=2.0,
        preempt=0.05,
    ),
)

EVERY_STAGE = (
    *STAGES,
    *RARE,
    *LEADERS,
    *SEGMENTS,
    *CROWDS,
    *ALONE,
    *ALONE_SEGMENTS,
    *MUTATIONS,
    *DETACHED,
    *TRANSACTIONS,
)
OF_A_STAGE = 10**12
"""Seeds from here on are about one stage each, by `seed // OF_A_STAGE`; beyond that they are like small ones."""


REAL_ROWS = 1000 * OF_A_STAGE
"""Seeds from here on are worlds of real parts (`real_world`), and about nothing else."""


def seeds_of(number: int, count: int, first: int = 0) -> range:
    """Seeds that are all about one stage of `EVERY_STAGE`; `first` as of general ones."""
    first += (number + 1) * OF_A_STAGE
    return range(first, first + count)


def stages_of(seed: int) -> tuple[Stage, ...]:
    """What a seed may be about; nothing for most."""
    if seed >= OF_A_STAGE:
        number = seed // OF_A_STAGE - 1
        return EVERY_STAGE[number : number + 1]
    if seed % RARE_EVERY == RARE_AT:
        return RARE
    if seed % RARE_EVERY in LEADERS_AT:
        return LEADERS
    if seed % RARE_EVERY == SEGMENTS_AT:
        return SEGMENTS
    if seed % RARE_EVERY in MUTATIONS_AT:
        return MUTATIONS
    if seed % RARE_EVERY in TRANSACTIONS_AT:
        return TRANSACTIONS
    if seed % CROWD_EVERY == CROWD_AT:
        return CROWDS
    return STAGES if seed % EVERY == EVERY - 1 else ()


COLLAPSING_EVERY, COLLAPSING_AT = 6, 4
"""The seeds whose tables have an engine that collapses rows, whatever they are about."""


def has_collapsing_engine(seed: int) -> bool:
    return seed % COLLAPSING_EVERY == COLLAPSING_AT or (seed % 2 == 0 and _is_about(seed, MUTATIONS))


def has_slow_appends(seed: int) -> bool:
    return _is_about(seed, CROWDS)


def has_small_segments(seed: int) -> bool:
    return seed % SMALL_EVERY == SMALL_AT or _is_about(seed, (*SEGMENTS, *ALONE_SEGMENTS))


def _is_about(seed: int, group: tuple[Stage, ...]) -> bool:
    stages = stages_of(seed)
    return bool(stages) and stages[0] in group
