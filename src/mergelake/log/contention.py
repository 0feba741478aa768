"""Who appends next: how writers of several processes share the positions of one log without a leader.

Who has just won knows the newest state and needs one request to win again; who has lost needs three. Left alone, one
writer in a loop would win for ever. So writers who have met others do not race: one of them, the **gatherer**, takes
along what the others leave in the intake (`intake`).

1. A writer *alone* appends. It neither waits nor asks: one request a commit. It is alone until it loses a race, or
   finds something in the intake when it looks. From then on its entries have members, if only one: so who loses to it
   knows that it minds others.
2. The gatherer is whoever appended the last entry. It waits a little, so that the others have read that entry and have
   left what comes next (longer if somebody came too late the last time), lists the intake, and appends what is there
   with its own. After `QUIET` entries without a sign of others it is alone again.
3. The others leave their member for the next position, and look now and then whether the entry is there: first when one
   is due, by the pace of the last ones.
4. If none comes for `PATIENCE` rounds the gatherer has gone, and they do what it does, one after another in the order
   of their attempts. Where gatherers rarely come back, patience is short from the start; and so it is for who was left
   out `MISSES_MAX` times while others were not. Since each takes along what all have left, whose turn it is costs
   requests, and no round.
5. Two who meet only each other have no use for a gatherer: each appends `BURST` entries, one after another, while the
   other one reads them, and then waits until that one has begun. Who waits in vain goes on, and waits less often.
6. An entry without members is of a writer who thinks that it is alone. Who loses to it appends again at once, to make
   itself known, and leaves something in the intake now and then. Who is alone looks there beside its
   commits, after every `INTAKE_EVERY` of them.

Each position is taken by a conditional put, whoever is right about whose turn it is: all of this is about speed.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Collection, Iterator

from mergelake.core.clock import Clock
from mergelake.core.ids import IdSource
from mergelake.log.operations import Entry, writer_of

QUIET = 16
"""Own entries, one after another, without a sign of others: then a writer is alone."""
GATHER_FIRST, GATHER_MIN, GATHER_MAX = 1.0, 0.5, 4.0
"""Appends after its last one at which the gatherer looks what others have left: to begin with, at least, at most."""
GATHER_MORE, GATHER_LESS = 0.2, 0.07
"""So much later if somebody came too late the last time, so much earlier if not."""
ROUND_FIRST, ROUND_MIN, ROUND_MAX = 5.0, 3.0, 16.0
"""From one gathered entry to the next, in appends: to begin with, at least, at most."""
PATIENCE_HEIR, PATIENCE = 1.3, 1.5
"""Rounds that the last gatherer, beaten by a single writer, and others wait for the next entry."""
PATIENCE_ALONE = 1.0
"""Appends that a writer waits, about, where nobody is known to gather, or those who do never come back."""
RANK_WAITS, RANK_MAX = 3.0, 4
"""Appends that it then waits for each who left a member before it."""
DUE_FIRST, DUE_LESS, DUE_MORE = 3.0, 0.3, 0.2
"""Appends from one entry to the first look for the next: to begin with, less if that found it, more if it did not."""
POLL = 0.3
"""Appends between two looks for the next entry."""
HEARD = 2.0
"""Rounds after which others that were not heard of are taken to be gone."""
MISSES_MAX = 3
"""Entries of others without its member, one after another, after which a writer is impatient."""
KNOCK_EVERY, KNOCK_FIRST = 8, 2
"""Losses to writers who are alone, of which one leads to the intake, and which one of them."""
INTAKE_EVERY, INTAKE_EVERY_OF_TWO = 16, 6
"""Own entries after which who is alone, or one of two, looks into the intake."""
NEAR = 16
"""Entries for which a writer that was heard of counts as there."""
BURST = 3
"""Entries that each of two writers appends at a time."""
YIELD = 2.6
"""Appends that who has done so waits for the other."""
PATIENCE_OTHER = 1.6
"""Appends that who waits for the end of a burst gives each entry."""
APPEND_FIRST_S, APPEND_MIN_S, APPEND_MAX_S = 0.01, 0.0005, 1.0
"""How long an append is thought to take before the first, at least, and at most."""


class Way(enum.Enum):
    """How to bring the next commit into the log."""

    APPEND = "append"
    GATHER = "take along what others have left, and append"
    LEAVE = "leave it to who gathers"
    WAIT = "let the other one append, and append if it does not"


class ContentionBackoff:
    """What one writer has seen of the others. Not for several threads at once."""

    def __init__(self, clock: Clock, ids: IdSource, writer: str = "") -> None:
        """`writer` is what the attempts of this one begin with."""
        self._clock = clock
        self._ids = ids
        self._own = writer
        self._append_s = APPEND_FIRST_S
        self._measured = False
        self._round = ROUND_FIRST  # in appends
        self._gather = GATHER_FIRST
        self._quiet = QUIET
        self._leads = self._heir = False
        self._gathers = False  # whether who appended the last entry is not alone, and says so
        self._due = DUE_FIRST  # in appends, from one entry to the first look for the next
        self._looks = 0
        self._writer = ""  # who appended the last entry
        self._run = 0  # how many it appended, one after another
        self._entries = 0  # how many were seen
        self._others = dict[str, int]()  # of other writers, how many had been seen when they were heard of last
        self._burst = BURST
        self._unlooked = 0  # own entries since the last look into the intake
        self._returns = 1.0  # how often who gathered did so again
        self._singles = self._misses = 0
        self._last_s = self._heard_s = clock.monotonic_s()
        self.knocked: Collection[str] = ()
        """Writers that have left something in the intake, set by whoever saw that; read at the next commit."""

    @property
    def alone(self) -> bool:
        """Whether nobody else was met lately."""
        return self._quiet >= QUIET

    def way(self) -> Way:
        """How to bring the next commit into the log."""
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
        """The other writers that were heard of lately."""
        return [name for name, seen in self._others.items() if self._entries - seen < NEAR]

    def looks(self) -> bool:
        """Whether it is time to look into the intake, of who does not gather; then it is taken for done."""
        every = INTAKE_EVERY if self.alone else INTAKE_EVERY_OF_TWO
        if self._unlooked < every or not (self.alone or len(self.near) == 1):
            return False
        self._unlooked = 0
        return True

    def gather(self) -> None:
        """Wait, as who gathers, until the others have had their time."""
        self._unlooked = 0  # it looks itself
        due_s = self._last_s + self._gather * self._append_s
        self._clock.sleep_s(max(due_s - self._clock.monotonic_s(), 0.0))

    def came_late(self, late: bool) -> None:
        """Whether somebody had left something for the last entry when it was too late."""
        gather = self._gather + (GATHER_MORE if late else -GATHER_LESS)
        self._gather = min(max(gather, GATHER_MIN), GATHER_MAX)

    def pauses(self, told: bool = False) -> Iterator[float]:
        """Pauses before each look for the next entry, of who leaves it to others; they end when patience does.

        `told`: who pauses is woken by the entry, and looks once.
        """
        chance = self._ids.jitter()
        began_s = self._clock.monotonic_s()
        if self._gathers and self._misses < MISSES_MAX and (self._heir or self._returns >= 0.5):
            began_s = self._last_s
            rounds = PATIENCE_HEIR if self._heir else PATIENCE + chance
            patience_s, first_s = rounds * self._round * self._append_s, self._due * self._append_s
        else:
            patience_s = first_s = (0.5 + chance) * PATIENCE_ALONE * self._append_s
        self._looks = 1
        yield from self._until(began_s + patience_s, began_s + first_s, told)

    def pauses_for_other(self, told: bool = False) -> Iterator[float]:
        """Pauses before each look for the next entry, of one of two whose turn it is not."""
        appends = YIELD if self._leads else PATIENCE_OTHER
        now_s = self._clock.monotonic_s()
        yield from self._until(self._last_s + appends * self._append_s, now_s, told)

    def pauses_behind(self, rank: int, told: bool = False) -> Iterator[float]:
        """More of them, of one out of patience, for each who has left something before it."""
        now_s = self._clock.monotonic_s()
        end_s = now_s + min(rank, RANK_MAX) * RANK_WAITS * self._append_s
        yield from self._until(end_s, now_s + self._append_s, told)

    def _until(self, end_s: float, first_s: float, told: bool) -> Iterator[float]:
        pause_s = POLL * self._append_s
        if told:
            first_s = end_s
        yield max(first_s - self._clock.monotonic_s(), 0.0)
        for _ in range(math.ceil((end_s - first_s) / pause_s)):  # also by a clock that stands still
            if self._clock.monotonic_s() >= end_s:
                return
            self._looks += 1
            yield pause_s

    def took(self, seconds: float) -> None:
        """A write of one object took so long."""
        took_s = min(max(seconds, APPEND_MIN_S), APPEND_MAX_S)
        if self._measured:
            self._append_s = 0.8 * self._append_s + 0.2 * min(took_s, 4 * self._append_s)
        else:
            self._append_s, self._measured = took_s, True

    def won(self, entry: Entry, passed: Collection[str] = ()) -> None:
        """The last entry is one that this writer appended; `passed` are writers that had it pass on what they say."""
        if self._leads and not self.alone and self._run % self._burst == 0:  # nobody came when it waited, if it did
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

    def lost(self, entry: Entry, mine: bool, paced: bool) -> None:
        """The last entry is one that another writer appended; `mine`: with what this one left.

        `paced`: this writer waited for it.
        """
        now_s = self._clock.monotonic_s()
        gathered, writer = bool(entry.members), writer_of(entry.attempt)
        if paced and gathered and self._gathers:
            took = max((now_s - self._last_s) / self._append_s, ROUND_MIN)
            came = writer == self._writer and took <= ROUND_MAX
            self._returns += 0.25 * (came - self._returns)
            if came:
                self._round += 0.3 * (took - self._round)
                self._due += -DUE_LESS if self._looks == 1 else DUE_MORE * (self._looks - 1)
                self._due = min(max(self._due, 0.0), self._round)
        self._heir = self._leads and not gathered
        self._leads, self._gathers, self._burst = False, gathered, BURST
        self._heard(entry, {self._own})
        self._singles = 0 if gathered else self._singles + 1
        if mine:
            self._misses = 0
        elif len(entry.members) > 1:
            self._misses += 1
        self._last_s = now_s
        self._meet()

    def _heard(self, entry: Entry, known: Collection[str]) -> bool:
        """Who stands in the last entry; whether others do than are known."""
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
