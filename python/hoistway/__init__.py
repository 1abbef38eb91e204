# SPDX-License-Identifier: Apache-2.0
"""The Python half of hoistway: what prepares data. Training needs none of it."""
