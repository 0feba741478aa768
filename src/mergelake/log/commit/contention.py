"""How writers of several processes share the positions of one log without a leader.

The winner of a race knows the newest state and needs one request to win again; a loser needs three. So one writer in a
loop would always win. Therefore writers that have met others do not race: one of them, the **gatherer**, includes the
members that the others leave in the intake (`intake`).

1. A writer that is *alone* appends, by one request per commit. It is alone until it loses a race or finds a member in
   the intake. From then on its entries list their members, even a single one: so a loser knows that it gathers.
2. The gatherer is the writer of the last entry. It waits a little, so that the others can read that entry and leave
   their next members (longer if one came too late the last time), lists the intake, and appends these members with its
   own. After `QUIET` entries without a sign of others it is alone again.
3. The others leave their member for the next position, and poll for the entry: first when it is due, by the pace of the
   last ones.
4. If there is none for `PATIENCE` rounds, the gatherer is gone, and they gather themselves, one after another in the
   order of their attempts. Patience is short from the start if gatherers rarely return, and for a writer that was
   omitted `MISSES_MAX` times while others were included. As each includes the members of all, a wrong turn costs
   requests, but no round.
5. Two writers that meet only each other need no gatherer: each appends `BURST` entries in a row, while the other one
   reads them, and then waits until the other has begun. A writer that waits in vain goes on, and waits less often.
6. An entry without members is of a writer that believes it is alone. A loser to it appends again at once, to become
   known, and leaves a member in the intake now and then. A writer that is alone checks the intake beside its commits,
   after every `INTAKE_EVERY` of them.

Each position is taken by a conditional put in any case: all of this affects only speed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterator

from mergelake.core.base.clock import Clock
from mergelake.core.base.ids import IdSource
from mergelake.log.model.operations import Entry, writer_of

QUIET = 16
"""Consecutive own entries without a sign of others, after which a writer is alone."""
GATHER_FIRST, GATHER_MIN, GATHER_MAX = 1.0, 0.5, 4.0
"""Time after its last append at which the gatherer lists the intake, in durations of an append: first, least, most."""
GATHER_MORE, GATHER_LESS = 0.2, 0.07
"""Increase of that time after a member came too late, and decrease otherwise."""
ROUND_FIRST, ROUND_MIN, ROUND_MAX = 5.0, 3.0, 16.0
"""Time from one gathered entry to the next (a round), in appends: first, least, most."""
PATIENCE_HEIR, PATIENCE = 1.3, 1.5
"""Rounds that a writer waits for the next entry: the last gatherer, if beaten by a lone writer, and the others."""
PATIENCE_ALONE = 1.0
"""Average number of appends that a writer waits if no gatherer is known, or gatherers do not return."""
RANK_WAITS, RANK_MAX = 3.0, 4
"""Further appends that it waits for each writer with an earlier member, and how many of these count."""
DUE_FIRST, DUE_LESS, DUE_MORE = 3.0, 0.3, 0.2
"""Appends from one entry to the first poll for the next: first value, decrease after a hit, increase after a miss."""
POLL = 0.3
"""Appends between two polls for the next entry."""
HEARD = 2.0
"""Rounds after which silent writers count as gone."""
MISSES_MAX = 3
"""Consecutive entries of others without its member, after which a writer is impatient."""
KNOCK_EVERY, KNOCK_FIRST = 8, 2
"""One of every `KNOCK_EVERY` losses to lone writers leads to a member in the intake; and which one of them."""
INTAKE_EVERY, INTAKE_EVERY_OF_TWO = 16, 6
"""Own entries after which a lone writer, or one of two, checks the intake."""
NEAR = 16
"""Entries for which a writer counts as present after its last sign."""
BURST = 3
"""Entries that each of two writers appends at a time."""
YIELD = 2.6
"""Appends that a writer waits for the other one after its burst."""
PATIENCE_OTHER = 1.6
"""Appends that a writer waits for each entry of the other one's burst."""
APPEND_FIRST_S, APPEND_MIN_S, APPEND_MAX_S = 0.01, 0.0005, 1.0
"""Estimated duration of an append: before the first, at least, and at most."""


class Way(enum.Enum):
    """How to append the next commit."""

    APPEND = "append"
    GATHER = "append with the members of others"
    LEAVE = "leave a member for the gatherer"
    WAIT = "let the other one append, and append if it does not"


class ContentionBackoff:
    """What one writer knows of the others, and when it appends or waits. Not thread-safe."""

    def __init__(self, clock: Clock, ids: IdSource, writer: str = "") -> None:
        """`writer` is the beginning of the attempts of this writer."""
        self._clock = clock
        self._ids = ids
        self._own = writer
        self._append_s = APPEND_FIRST_S
        self._measured = False
        self._round = ROUND_FIRST  # in appends
        self._gather = GATHER_FIRST
        self._quiet = QUIET
        self._leads = self._heir = False
        self._gathers = False  # whether the last entry lists its members: its writer gathers
        self._due = DUE_FIRST  # in appends, from one entry to the first poll for the next
        self._polls = 0
        self._writer = ""  # of the last entry
        self._run = 0  # consecutive entries of that writer
        self._entries = 0  # entries seen
        self._others = dict[str, int]()  # other writers -> value of `_entries` at their last sign
        self._burst = BURST
        self._unlooked = 0  # own entries since the last check of the intake
        self._returns = 1.0  # moving average of how often a gatherer gathered again
        self._singles = self._misses = 0
        self._last_s = self._heard_s = clock.monotonic_s()
        self.knocked: Collection[str] = ()
        """Writers with members in the intake, set by the thread that checked it; read at the next commit."""

    @property
    def alone(self) -> bool:
        """Whether there was no sign of other writers lately."""
        return self._quiet >= QUIET

    def way(self) -> Way:
        """How to append the next commit."""
        if others := set(self.knocked) - {self._own}:
            self._others.update(dict.fromkeys(others, self._entries))
            self._meet()
        self.knocked = ()
        heard_s = max(self._heard_s, self._last_s) if self._leads else self._heard_s
        silent_s = self._clock.monotonic_s() - heard_s
        if self.alone or silent_s > HEARD * self._round * self._append_s:
            return Way.APPEND
        if len(self.near) == 1 and (self._leads or self._gathers):
            last = self._run % self._burst == 0 if self._leads else self._run >= BURST
            return Way.WAIT if last is self._leads else Way.APPEND
        if self._leads:
            return Way.GATHER
        at_once = not self._gathers and self._singles % KNOCK_EVERY != KNOCK_FIRST
        return Way.APPEND if at_once else Way.LEAVE

    @property
    def near(self) -> list[str]:
        """The other writers with a sign within the last `NEAR` entries."""
        return [name for name, seen in self._others.items() if self._entries - seen < NEAR]

    def intake_check_due(self) -> bool:
        """Whether a writer that does not gather should check the intake now; if so, it counts as done."""
        every = INTAKE_EVERY if self.alone else INTAKE_EVERY_OF_TWO
        if self._unlooked < every or not (self.alone or len(self.near) == 1):
            return False
        self._unlooked = 0
        return True

    def gather(self) -> None:
        """Wait, as the gatherer, until the others have had time to leave their members."""
        self._unlooked = 0  # it reads the intake next
        due_s = self._last_s + self._gather * self._append_s
        self._clock.sleep_s(max(due_s - self._clock.monotonic_s(), 0.0))

    def came_late(self, late: bool) -> None:
        """Adapt the wait of the gatherer to whether a member came too late for the last entry."""
        gather = self._gather + (GATHER_MORE if late else -GATHER_LESS)
        self._gather = min(max(gather, GATHER_MIN), GATHER_MAX)

    def pauses(self, notified: bool = False) -> Iterator[float]:
        """Pauses in seconds before each poll for the next entry, of a writer that left a member, while it is patient.

        `notified`: a new entry ends the pause, so there is one poll.
        """
        chance = self._ids.jitter()
        began_s = self._clock.monotonic_s()
        if self._gathers and self._misses < MISSES_MAX and (self._heir or self._returns >= 0.5):
            began_s = self._last_s
            rounds = PATIENCE_HEIR if self._heir else PATIENCE + chance
            patience_s, first_s = rounds * self._round * self._append_s, self._due * self._append_s
        else:
            patience_s = first_s = (0.5 + chance) * PATIENCE_ALONE * self._append_s
        self._polls = 1
        yield from self._until(began_s + patience_s, began_s + first_s, notified)

    def pauses_for_other(self, notified: bool = False) -> Iterator[float]:
        """Pauses before each poll for the next entry, of one of two writers while it is the other one's turn."""
        appends = YIELD if self._leads else PATIENCE_OTHER
        now_s = self._clock.monotonic_s()
        yield from self._until(self._last_s + appends * self._append_s, now_s, notified)

    def pauses_behind(self, rank: int, notified: bool = False) -> Iterator[float]:
        """Further pauses, after `pauses`, of a writer with `rank` members of others before its own."""
        now_s = self._clock.monotonic_s()
        end_s = now_s + min(rank, RANK_MAX) * RANK_WAITS * self._append_s
        yield from self._until(end_s, now_s + self._append_s, notified)

    def _until(self, end_s: float, first_s: float, notified: bool) -> Iterator[float]:
        pause_s = POLL * self._append_s
        if notified:
            first_s = end_s
        yield max(first_s - self._clock.monotonic_s(), 0.0)
        for _ in range(math.ceil((end_s - first_s) / pause_s)):  # bounded even if the clock stands still
            if self._clock.monotonic_s() >= end_s:
                return
            self._polls += 1
            yield pause_s

    def took(self, seconds: float) -> None:
        """Note how long the write of one object took."""
        took_s = min(max(seconds, APPEND_MIN_S), APPEND_MAX_S)
        if self._measured:
            self._append_s = 0.8 * self._append_s + 0.2 * min(took_s, 4 * self._append_s)
        else:
            self._append_s, self._measured = took_s, True

    def won(self, entry: Entry, passed: Collection[str] = ()) -> None:
        """Note an entry that this writer appended; `passed` are writers whose commits were passed on to it."""
        if self._leads and not self.alone and self._run % self._burst == 0:  # the other one did not take its turn
            self._burst = min(2 * self._burst, QUIET)
        self._unlooked += 1
        others = self._heard(entry, {self._own, *passed})
        self._last_s = self._clock.monotonic_s()
        self._leads, self._heir = True, False
        self._singles = self._misses = 0
        if others:
            self._meet()
        else:
            self._quiet += 1

    def lost(self, entry: Entry, included: bool, paced: bool) -> None:
        """Note an entry that another writer appended; `included`: it holds the member of this one.

        `paced`: this writer waited for it.
        """
        now_s = self._clock.monotonic_s()
        gathered, writer = bool(entry.members), writer_of(entry.attempt)
        if paced and gathered and self._gathers:
            rounds = max((now_s - self._last_s) / self._append_s, ROUND_MIN)
            returned = writer == self._writer and rounds <= ROUND_MAX
            self._returns += 0.25 * (returned - self._returns)
            if returned:
                self._round += 0.3 * (rounds - self._round)
                self._due += -DUE_LESS if self._polls == 1 else DUE_MORE * (self._polls - 1)
                self._due = min(max(self._due, 0.0), self._round)
        self._heir = self._leads and not gathered
        self._leads, self._gathers, self._burst = False, gathered, BURST
        self._heard(entry, {self._own})
        self._singles = 0 if gathered else self._singles + 1
        if included:
            self._misses = 0
        elif len(entry.members) > 1:
            self._misses += 1
        self._last_s = now_s
        self._meet()

    def _heard(self, entry: Entry, known: Collection[str]) -> bool:
        """Note the writers of the last entry; returns whether there are others than `known`."""
        writer = writer_of(entry.attempt)
        self._entries += 1
        self._run = self._run + 1 if writer == self._writer else 1
        others = {writer_of(member.attempt) for member in entry.parties}.difference(known)
        self._others.update(dict.fromkeys(others, self._entries))
        if len(self._others) > NEAR * 4:
            self._others = {name: seen for name, seen in self._others.items() if self._entries - seen < NEAR}
        self._writer = writer
        return bool(others)

    def _meet(self) -> None:
        self._quiet = 0
        self._heard_s = self._clock.monotonic_s()
