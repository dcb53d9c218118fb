# SPDX-License-Identifier: Apache-2.0
"""placeholder"""

from checks.base import Count


def check():
    return Count()
