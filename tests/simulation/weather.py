"""What befalls the store as a whole, and disks: outages, wrong bits in parts, files that a power cut tore."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from tests.simulation.bucket import flipped

if TYPE_CHECKING:
    from tests.simulation.kernel import Machine
    from tests.simulation.world import World


class Weather:
    """Drawn from the scheduler's chance; how much of it there is differs from seed to seed."""

    def __init__(self, world: World, draw: Random) -> None:
        self.world = world
        self.outages = draw.choice([0.0, 0.0, 0.005, 0.02])
        self.rot = draw.choice([0.0, 0.0, 0.0, 0.01])
        world.bucket.rot_rate = draw.choice([0.0, 0.0, 0.1, 0.4])
        self.tears = draw.choice([0.0, 0.3, 1.0])
        """How often a machine that dies leaves torn files."""
        self.digits = False
        """Whether wrong bits on disks make other numbers, and not mere noise."""

    def step(self, pass_s: float) -> None:
        draw, kernel = self.world.kernel.random, self.world.kernel
        if draw.random() < self.outages:
            bucket = self.world.bucket
            longest_s = 30 * self.world.pace_s + 10_000 * self.world.leaps
            bucket.dark_until_s = kernel.now_s + draw.random() ** 2 * longest_s + pass_s
            bucket.mute = draw.random() < 0.5
            kernel.trace.add(f"  (the store is out for {bucket.dark_until_s - kernel.now_s:.0f} s)")
        if draw.random() < self.rot:
            self.spoil(draw)

    def spoil(self, draw: Random) -> None:
        """A wrong bit in a part: its rows are lost, and must never be taken for right."""
        bucket = self.world.bucket
        known = [key for table in self.world.tables.values() for key in table.spans]
        keys = sorted({key for key in known if key in bucket.objects and key not in self.world.rotten})
        if keys:
            key = draw.choice(keys)
            data, since = bucket.objects[key]
            self.world.rotten[key] = data
            bucket.objects[key] = (flipped(data, draw), since)
            self.world.kernel.trace.add(f"  ({key} is damaged)")

    def restore(self) -> None:
        """From a copy of the bucket."""
        bucket = self.world.bucket
        for key, data in self.world.rotten.items():
            if key in bucket.objects:
                bucket.objects[key] = (data, bucket.objects[key][1])
        self.world.rotten.clear()
        bucket.rot_rate, bucket.dark_until_s = 0.0, 0.0
        self.outages = self.rot = 0.0

    def tear(self, machine: Machine, chance: Random) -> None:
        """Files of a disk that was not synced: cut short, empty, with wrong bits, or gone."""
        files = [key for key, held in machine.disk.items() if isinstance(held, tuple)]
        if not files or chance.random() >= self.tears:
            return
        for key in chance.sample(files, min(len(files), chance.randint(1, 3))):
            data, since = machine.disk[key]
            way = 3 if self.digits else chance.randrange(4)
            if way == 0:
                del machine.disk[key]
            else:
                cut, wrong = data[: chance.randrange(len(data) + 1)], flipped(data, chance, self.digits)
                machine.disk[key] = ((cut, bytes(len(data)), wrong)[way - 1], since)
            machine.torn += 1
            self.world.kernel.trace.add(f"{machine.name}: {key} is torn")
