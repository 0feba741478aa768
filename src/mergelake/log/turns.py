"""Taking turns without a word: how writers of several processes share the positions of one log.

Who has just won knows the newest state and needs one request to win again; who has lost needs three. Left alone, one
writer in a loop would win for seconds while the others lose every race. So

* a loser waits for a random time of up to `LOSER_WAITS` appends, no more the more often it lost;
* a winner that commits again at once steps aside for a moment after every few commits: after `RUN_FIRST` of them, then
  ever less often while nobody else is seen, and after each one once it has lost a race.

A writer alone pays a pause in 8, 16, 32, … and in the end 128 commits, less than a tenth of its time, and no request.
"""

from __future__ import annotations

from mergelake.core.clock import Clock
from mergelake.core.ids import IdSource

LOSER_WAITS = 3.0
RUN_FIRST, RUN_MAX = 8, 128
ASIDE_MIN, ASIDE_MAX, ASIDE_SHARE = 2.0, 6.0, 0.05
"""How long a winner steps aside: appends, enough for a loser to look and to append, and a share of the time since it
did so before, for losers on a busy machine."""
APPEND_FIRST_S, APPEND_MAX_S = 0.01, 1.0
"""How long an append is thought to take before the first, and at most."""
_AT_ONCE = 2.0
"""A commit that comes within so many appends after the last one comes at once."""


class Turns:
    """What one writer has seen of the others. Not for several threads at once."""

    def __init__(self, clock: Clock, ids: IdSource) -> None:
        self._clock = clock
        self._ids = ids
        self._append_s = APPEND_FIRST_S
        self._known = False
        self._won_s = self._aside_s = clock.monotonic_s()
        self._run = 0
        self._run_max = RUN_FIRST

    def appended(self, began_s: float, won: bool) -> None:
        """An append that began then has ended, on the monotonic clock."""
        self._won_s = self._clock.monotonic_s()
        took_s = min(self._won_s - began_s, APPEND_MAX_S)
        self._append_s = 0.8 * self._append_s + 0.2 * min(took_s, 4 * self._append_s) if self._known else took_s
        self._known = True
        self._run += 1
        if not won:
            self._run, self._run_max = 0, 1

    def step_aside(self) -> None:
        """Before a commit: let others go first, if it is time to."""
        if self._run < self._run_max:
            return
        self._run = 0
        if self._clock.monotonic_s() - self._won_s <= _AT_ONCE * self._append_s:
            self._run_max = min(2 * self._run_max, RUN_MAX)
            appends = ASIDE_MIN + (ASIDE_MAX - ASIDE_MIN) * self._ids.jitter()
            held_s = min(self._won_s - self._aside_s, RUN_MAX * self._append_s)
            self._clock.sleep_s(appends * self._append_s + ASIDE_SHARE * held_s)
        self._aside_s = self._clock.monotonic_s()

    def after_loss(self) -> None:
        """Before the next try."""
        self._clock.sleep_s(LOSER_WAITS * self._append_s * self._ids.jitter())
