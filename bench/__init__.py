# SPDX-License-Identifier: Apache-2.0
"""The benchmarks: `make bench`, or `python -m bench --help`. See docs/benchmarks.md."""
