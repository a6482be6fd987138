"""How long the doors take to answer, by door and kind of request: since the start, and within the last looks. It only adds."""

from collections import deque

from peik.core.histogram import Histogram, merged

LOOKS = 4  # of a quarter of a minute each

Place = tuple[str, str]  # the door, and which kind of request: few of each, and never an id


class Answering:
    def __init__(self) -> None:
        self.took: dict[Place, Histogram] = {}
        self._before: deque[dict[str, Histogram]] = deque([{}], maxlen=LOOKS)

    def add(self, place: Place, seconds: float) -> None:
        histogram = self.took.get(place)
        if histogram is None:
            histogram = self.took[place] = Histogram()
        histogram.add(seconds)

    def lately(self) -> dict[str, Histogram]:
        """Per door what was answered since the look before the last few. To be asked at each look, and by nobody else."""
        doors = {door for door, _ in self.took}
        now = {door: merged(one for place, one in self.took.items() if place[0] == door) for door in doors}
        then = self._before[0]
        self._before.append(now)
        return {door: one.since(then.get(door, Histogram())) for door, one in now.items()}
