# SPDX-License-Identifier: Apache-2.0
"""How content a user is with a page that took so long: quality of experience, from 0 to 1.

The paper takes a model of others and prints eight of its points. Between them lies a straight
line; outside, the value of the nearest one, but for a page that takes no time: that is 1.
"""

import numpy as np

POINTS = (
    (0.0, 1.0),
    (1.16, 0.98),
    (2.08, 0.96),
    (2.21, 0.82),
    (3.61, 0.60),
    (4.22, 0.56),
    (4.36, 0.54),
    (6.02, 0.39),
    (6.25, 0.38),
)


def of(seconds):
    times, values = zip(*POINTS, strict=True)
    return float(np.interp(seconds, times, values))
