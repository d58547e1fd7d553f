# SPDX-License-Identifier: Apache-2.0
"""What prefill costs here, measured from the steps themselves: seconds = a * tokens + b * (end^2 - begin^2).

Least squares over the steps, the older ones counting less; both are at least 0. Pure: no clock, no threads.
"""
FORGET = 0.97
LEAST_STEPS = 3
CHANGE = 0.1


class Cost:
    def __init__(self) -> None:
        self._steps = 0
        self._xx = self._xy = self._yy = self._xt = self._yt = 0.0
        self.a_s = self.b_s = 0.0
        self._told = (0.0, 0.0)

    def add(self, tokens: int, square: int, seconds: float) -> None:
        self._steps += 1
        if self._steps == 1:  # the first makes what the engine makes once
            return
        # Each step counts by its share: a long one is not to drown the short ones.
        weight = 1.0 / max(seconds, 1e-4) ** 2
        x, y = float(tokens), float(square)
        for name, value in (("_xx", x * x), ("_xy", x * y), ("_yy", y * y), ("_xt", x * seconds), ("_yt", y * seconds)):
            setattr(self, name, FORGET * getattr(self, name) + weight * value)
        self._solve()

    def _solve(self) -> None:
        determinant = self._xx * self._yy - self._xy * self._xy
        if determinant > 1e-9 * self._xx * self._yy:
            a = (self._xt * self._yy - self._yt * self._xy) / determinant
            b = (self._yt * self._xx - self._xt * self._xy) / determinant
            if a > 0 and b > 0:
                self.a_s, self.b_s = a, b
                return
            if a <= 0 and self._yy > 0:
                self.a_s, self.b_s = 0.0, self._yt / self._yy
                return
        if self._xx > 0:
            self.a_s, self.b_s = self._xt / self._xx, 0.0

    def news(self) -> "tuple[float, float] | None":
        """The cost, when it is known and differs from what was told before by a tenth of what 4,096 tokens cost."""
        if self._steps <= LEAST_STEPS:
            return None

        def seconds(a: float, b: float) -> float:
            return a * 4096 + b * 4096 * 4096
        now, before = seconds(self.a_s, self.b_s), seconds(*self._told)
        if abs(now - before) <= CHANGE * now:
            return None
        self._told = (self.a_s, self.b_s)
        return self._told
