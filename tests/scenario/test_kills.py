"""Runs and submissions that are killed as whole processes: the next run brings everything to its end."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.scenario.fed import fast_folder
from tests.scenario.killing import Killer

KILLS, SUBMITS = 20, 4  # in all, and of those that hand an update in


@pytest.mark.long
def test_random_kills_of_whole_processes_lose_double_and_wedge_nothing() -> None:
    with fast_folder() as name:
        killer = Killer(Path(name), random.Random(7))
        try:
            while killer.killed < KILLS or killer.submits < SUBMITS:
                killer.kill_some()
            killer.check()
        except BaseException as e:
            e.add_note("\n".join(killer.log))
            raise
        finally:
            killer.fed.close()
