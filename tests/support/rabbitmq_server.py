"""A RabbitMQ node for the tests: on loopback, with its own name, port mapper, ports and data folder."""

from __future__ import annotations

import os
import re
import secrets
import shutil
import subprocess
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

from kombu import Connection

from tests.support.child_process import ChildProcess, free_ports
from tests.support.missing import ServerMissingError

#: Where Debian keeps the script itself: the one on PATH changes to a user
#: who cannot write into the tests' folders, and detaches.
DEBIAN_SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"

#: Seconds a node may take to boot on a busy machine (about 6 on a free one).
BOOT_S = 100.0

#: Its schedulers sleep when there is nothing to do; by default they spin for a while, which costs the tests a core.
IDLE = "+sbwt none +sbwtdcpu none +sbwtdio none"

#: Name, ready and unacked messages of every queue of the default virtual host.
COUNT_QUEUES = """
[{binary_to_list(Name), Ready, Unacked}
 || [{name, {resource, _, queue, Name}}, {messages_ready, Ready}, {messages_unacknowledged, Unacked}]
 <- rabbit_amqqueue:info_all(<<"/">>, [name, messages_ready, messages_unacknowledged])]
"""

QUEUE_COUNT = re.compile(r'\{"([^"]*)", (\d+), (\d+)\}')


class RabbitMQServer:
    """The node behind BATCHING_RABBITMQ_URL, or else a child with its own epmd."""

    def __init__(self, folder: Path, *, external: str | None = None) -> None:
        """Boot a node in `folder`, or use the `external` one at that URL."""
        self._children = ExitStack()
        self._node: ErlangNode | None = None
        if external:
            self.url = external
            return
        self._port, dist_port, epmd_port = free_ports(3)
        self.url = f"amqp://guest:guest@127.0.0.1:{self._port}//"
        self._node = ErlangNode(folder, epmd_port)
        with ExitStack() as started:
            self._boot(started, self._node, dist_port, find_server())
            self._children = started.pop_all()

    @classmethod
    def for_tests(cls, folder: Path) -> RabbitMQServer:
        """Use the node that the environment names, or boot one."""
        return cls(folder, external=os.environ.get("BATCHING_RABBITMQ_URL"))

    def _boot(self, started: ExitStack, node: ErlangNode, dist_port: int, server: str) -> None:
        env = node.environment(self._port, dist_port)
        # A port mapper of our own: the one that a node starts by itself stays for ever.
        epmd = ["epmd", "-port", node.epmd_port, "-address", "127.0.0.1"]
        mapper = started.enter_context(ChildProcess(epmd, folder=node.subfolder("epmd"), env=env))
        mapper.wait_for(lambda: mapper.listens_on(int(node.epmd_port)), "epmd serves its port")
        process = started.enter_context(ChildProcess([server], folder=node.subfolder("server"), env=env))
        process.wait_for(lambda: process.listens_on(self._port), "RabbitMQ serves AMQP", BOOT_S)

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of a new connection."""
        with Connection(self.url) as connection, connection.channel() as channel:
            yield channel

    def leftovers(self, prefix: str) -> list[str]:
        """What is ready or unacked in the queues whose names start with `prefix`.

        Of an external node only the ready messages of the queue with that very
        name can be seen: AMQP does not tell more.
        """
        counts = self._node.queues() if self._node else [self._declared(prefix)]
        return [
            f"queue {name}: {ready} ready, {unacked} unacked"
            for name, ready, unacked in counts
            if name.startswith(prefix) and (ready or unacked)
        ]

    def _declared(self, queue: str) -> tuple[str, int, int]:
        with self.channel() as channel:
            return queue, channel.queue_declare(queue, passive=True).message_count, 0

    def purge(self, queue: str) -> None:
        """Drop the ready messages of a queue."""
        with self.channel() as channel:
            channel.queue_purge(queue)

    def delete(self, queue: str) -> None:
        """Remove a queue and the exchange of the same name; it may not be there at all."""
        with self.channel() as channel:
            channel.queue_delete(queue)
            channel.exchange_delete(queue)

    def drop_connections(self, ports: Collection[int]) -> None:
        """Close the connections from these client ports, as an operator would."""
        if self._node is None:
            message = "connections of an external node cannot be closed by the tests"
            raise ServerMissingError(message)
        # A connection that ends by itself in the midst of this, such as one that was cut before, must not stop it.
        self._node.evaluate(
            '[(catch rabbit_networking:close_connection(Pid, <<"tests">>))'
            " || Pid <- rabbit_networking:connections(),"
            " [{peer_port, Port}] <- [(catch rabbit_reader:info(Pid, [peer_port]))],"
            f" lists:member(Port, {sorted(ports)})]"
        )

    @contextmanager
    def refusing(self) -> Iterator[None]:
        """Nobody new can connect while this lasts."""
        self.evaluate("rabbit_maintenance:suspend_all_client_listeners()")
        try:
            yield
        finally:
            self.evaluate("rabbit_maintenance:resume_all_client_listeners()")

    def restart_broker(self) -> None:
        """Stop and start RabbitMQ in its node, with all connections of it: durable queues are there again."""
        self.evaluate("rabbit:stop(), rabbit:start()")

    def evaluate(self, expression: str) -> str:
        """The value of an Erlang expression in our own node."""
        if self._node is None:
            message = "the tests do not look into an external node"
            raise ServerMissingError(message)
        return self._node.evaluate(expression)

    def __enter__(self) -> RabbitMQServer:  # noqa: PYI034 - typing.Self needs Python 3.11
        """Give the running node."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """End the node and its port mapper."""
        self._children.close()


class ErlangNode:
    """The Erlang side of our own node: its environment, and calls into it."""

    def __init__(self, folder: Path, epmd_port: int) -> None:
        """Keep everything of the node in `folder`."""
        self.folder = folder
        self.epmd_port = str(epmd_port)
        self.name = f"tests-{secrets.token_hex(4)}@localhost"
        self.cookie = secrets.token_hex(16)

    def subfolder(self, name: str) -> Path:
        """A folder of its own for one of the processes."""
        path = self.folder / name
        path.mkdir()
        return path

    def environment(self, port: int, dist_port: int) -> dict[str, str]:
        """What the node must know; nothing of the system's own RabbitMQ is read or written."""
        plugins, config = self.folder / "enabled_plugins", self.folder / "rabbitmq.conf"
        plugins.write_text("[].\n")
        config.touch()
        return {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "ERL_EPMD_PORT": self.epmd_port,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": self.name,
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_DIST_PORT": str(dist_port),
            "RABBITMQ_MNESIA_BASE": str(self.folder / "data"),
            "RABBITMQ_LOG_BASE": str(self.folder / "log"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(plugins),
            "RABBITMQ_CONFIG_FILE": str(config),
            "RABBITMQ_CONF_ENV_FILE": os.devnull,
            "RABBITMQ_PID_FILE": str(self.folder / "pid"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": (
                f"-setcookie {self.cookie} -kernel inet_dist_use_interface {{127,0,0,1}} {IDLE}"
            ),
            # The start script then becomes the node, so that our pid is the node's.
            "detached": "true",
        }

    def evaluate(self, expression: str) -> str:
        """Run an Erlang expression in the node: milliseconds, where rabbitmqctl takes a second."""
        command = [find_erl_call(), "-n", self.name, "-c", self.cookie, "-e"]
        env = {"PATH": os.environ["PATH"], "HOME": str(self.folder), "ERL_EPMD_PORT": self.epmd_port}
        done = subprocess.run(command, input=f"{expression}.\n", env=env, capture_output=True, text=True, check=True)
        if not done.stdout.startswith("{ok, "):
            raise RuntimeError(done.stdout)
        return done.stdout

    def queues(self) -> list[tuple[str, int, int]]:
        """Name, ready and unacked messages of every queue."""
        found = QUEUE_COUNT.findall(self.evaluate(COUNT_QUEUES))
        return [(name, int(ready), int(unacked)) for name, ready, unacked in found]


def find_server() -> str:
    """The path of the script that starts a node as the current user."""
    path = DEBIAN_SCRIPT if os.access(DEBIAN_SCRIPT, os.X_OK) else shutil.which("rabbitmq-server")
    if path is None or shutil.which("epmd") is None:
        message = "no BATCHING_RABBITMQ_URL and no rabbitmq-server with epmd installed"
        raise ServerMissingError(message)
    return path


def find_erl_call() -> str:
    """The path of Erlang's own command for calls into a node."""
    erl = shutil.which("erl")
    binaries = Path(erl).resolve().parent if erl else Path()
    path = shutil.which("erl_call", path=binaries) or shutil.which("erl_call")
    if path is None:
        message = "no erl_call beside erl, so nobody can look into RabbitMQ's queues"
        raise ServerMissingError(message)
    return path
