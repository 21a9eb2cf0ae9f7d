"""The flows while NATS, or a run, is killed: nothing that was acknowledged is lost, and nothing lands twice."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from pathlib import Path

from model_foundry.errors import FoundryError
from model_foundry.event_inbox import record_of_day
from model_foundry.event_intake import EventIntake
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


EVENTS, DUPLICATES, REJECTS = 94_000, 5_000, 1_000
LANDS = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from model_foundry.config import load
from model_foundry.event_inbox import take_events
from model_foundry.runtime import Foundry
file = Path(sys.argv[1])
print("begins", flush=True)
take_events(Foundry(load(file), file), datetime.now(UTC).date(), run_id="r")
"""


def test_a_hundred_thousand_events_with_duplicates_and_rejects_survive_runs_that_are_killed(
    scene: Scene,
) -> None:
    dice = random.Random(SEED)
    bodies = [json.dumps({"event_id": f"e{i}", "payload": {"n": i}}).encode() for i in range(EVENTS)]
    bodies += dice.sample(bodies, DUPLICATES)
    bodies += [b"{" if i % 2 else b'{"event_id": 7}' for i in range(REJECTS)]
    dice.shuffle(bodies)
    scene.publish(*bodies, subject="llm.other")
    scene.raw["limits"]["sensor_batch_events"] = 5_000
    foundry = scene.foundry
    foundry.warehouse.migrate()

    def landed() -> int:
        return int(foundry.warehouse.rows("select count(*) as n from stream_messages")[0]["n"])

    kills, before = 0, []
    while landed() < len(bodies):
        argv = [sys.executable, "-c", LANDS, str(scene.folder / "foundry.yaml")]
        run = subprocess.Popen(argv, stdout=subprocess.PIPE, text=True)
        assert run.stdout is not None
        assert run.stdout.readline() == "begins\n"
        try:
            run.wait(dice.uniform(0.5, 4.0))
        except subprocess.TimeoutExpired:
            run.kill()
            run.wait()
            kills += 1
        before.append(landed())
        assert len(before) < 200, f"it does not get on: {before[-5:]}"
    assert before == sorted(before), "what was committed stays"
    assert kills > 0
    assert list(overdue(foundry, EventIntake, datetime.now(UTC) + timedelta(hours=1))) == []
    record = record_of_day(foundry.warehouse, datetime.now(UTC).date())
    assert (record.event_count, record.duplicates, record.rejects) == (EVENTS, DUPLICATES, REJECTS)
    [ids] = foundry.warehouse.rows("select count(distinct event_id) as n, sum(duplicates) as again from events")
    assert (ids["n"], ids["again"]) == (EVENTS, DUPLICATES)
    assert [found for found in examine(foundry.warehouse) if found.broken] == []
