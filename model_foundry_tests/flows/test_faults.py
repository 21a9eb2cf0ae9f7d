"""The flows while NATS is killed: nothing that was acknowledged is lost, and nothing lands twice."""

from __future__ import annotations

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from model_foundry.errors import FoundryError
from model_foundry.intake import land_partition
from model_foundry.prompt_intake import PromptIntake
from model_foundry.reconciling import overdue
from model_foundry.warehouse.invariants import examine
from model_foundry_tests.flows.conftest import Scene
from model_foundry_tests.parts import NatsServer, wait_for

SEED = int(os.environ.get("FAULTS_SEED", "7"))
KILLS = 10


def test_prompts_survive_a_server_that_is_killed_again_and_again(tmp_path: Path) -> None:
    """One thread publishes and notes what was acknowledged, one lands, and nats-server is killed at random moments."""
    dice = random.Random(SEED)
    acknowledged: set[int] = set()
    with NatsServer(tmp_path / "nats") as nats, ThreadPoolExecutor() as pool:
        scene = Scene(tmp_path, nats.url)
        foundry = scene.foundry
        ending = False

        def publish() -> None:
            number = 0
            while not ending:
                bodies = [{"prompt": f"p{number + i}", "model": "small"} for i in range(20)]
                try:
                    acknowledged.update(ack.seq for ack in scene.publish(*bodies))
                    number += 20
                except FoundryError:
                    time.sleep(0.05)

        def land() -> None:
            while not ending:
                try:
                    land_partition(foundry, PromptIntake, (datetime.now(UTC).date(), "cpu_inference"), run_id="r")
                except FoundryError:
                    time.sleep(0.05)

        work = [pool.submit(publish), pool.submit(land)]
        for _ in range(KILLS):
            time.sleep(dice.uniform(0.1, 0.8))
            nats.kill()
            nats.start()
        had = len(acknowledged)
        wait_for("something published after the last kill", lambda: len(acknowledged) > had)
        ending = True
        for done in work:
            done.result(120)
        # what the next reconciliation does
        for found in overdue(foundry, PromptIntake, datetime.now(UTC) + timedelta(hours=1)):
            land_partition(foundry, PromptIntake, (found.partition_date, found.lane), run_id="heal")
        rows = foundry.warehouse.rows("select seq from stream_messages")
    assert acknowledged <= {row["seq"] for row in rows}
    assert foundry.warehouse.rows("from lost_messages") == []
    assert [found for found in examine(foundry.warehouse) if found.broken] == []
