"""A real Flower as a child process on a private port, watched through its HTTP API."""

from __future__ import annotations

import json
import os
import sys
import urllib.request
from pathlib import Path
from typing import Any

from tests.support.child_process import ChildProcess, free_ports
from tests.support.worker_process import ROOT, WorkerProcess

#: Seconds for Flower to serve its page (about 4 on a free machine).
START_S = 80.0


class FlowerProcess(ChildProcess):
    """`celery flower` for the app of a worker, which turns the worker's events on."""

    def __init__(self, worker: WorkerProcess, folder: Path) -> None:
        """Start it, and wait until it answers and knows the worker."""
        self._port = free_ports(1)[0]
        self._node = worker.node
        app = f"tests.support.apps.{worker.options.module}"
        argv = [sys.executable, "-m", "celery", "-A", app, "flower"]
        # By default it gives a worker a second to answer, in milliseconds.
        argv += ["--address=127.0.0.1", f"--port={self._port}", "--enable_events", "--inspect_timeout=20000"]
        own = {"PYTHONPATH": str(ROOT), "FLOWER_UNAUTHENTICATED_API": "true", **worker.live.site.environ()}
        super().__init__(argv, folder=folder, env={**os.environ, **own})
        self.wait_for(lambda: self.listens_on(self._port), "Flower serves its port", START_S)
        self.wait_for(self._knows_worker, "Flower sees the worker online", START_S)

    def get(self, path: str) -> Any:
        """The JSON behind a path of the API: `get("/api/tasks")`."""
        return json.loads(self.text(path))

    def text(self, path: str) -> str:
        """What is behind a path, as it stands."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=40) as answer:
            body: bytes = answer.read()
        return body.decode()

    def tasks(self, name: str) -> dict[str, dict[str, Any]]:
        """What it knows of the tasks with this name, by id."""
        found: dict[str, dict[str, Any]] = self.get(f"/api/tasks?taskname={name}&limit=1000")
        return found

    def batching(self) -> Any:
        """What its page of the worker shows of the batching; it asks the worker anew."""
        return self.get(f"/api/workers?refresh=1&workername={self._node}")[self._node].get("stats", {}).get("batching")

    def metric(self, name: str, **labels: str) -> float | None:
        """The value of a line of `/metrics` that carries all these labels; None when there is none."""
        for line in self.text("/metrics").splitlines():
            wanted = [f'{label}="{value}"' for label, value in labels.items()]
            if line.startswith(f"{name}{{") and all(one in line for one in wanted):
                return float(line.rpartition(" ")[2])
        return None

    def _knows_worker(self) -> bool:
        return self.metric("flower_worker_online", worker=self._node) == 1
