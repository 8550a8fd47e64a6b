"""The hosts of a Ray cluster: one actor each, calls to them, and which host an error means is lost."""

from __future__ import annotations

import contextlib
import logging
import socket
import sys
from collections.abc import Callable, Iterator
from typing import Any

from flatout.errors import StagingFailed, UsageError
from flatout.stage.cluster.host import ClusterHost
from flatout.stage.sources.base import StoreOptions
from flatout.stage.transfer import Options

CONNECT_S = 5.0


class HostLost(Exception):
    """A host is gone, with all files on it.

    Attributes:
        name: of the host.
    """

    def __init__(self, name: str) -> None:
        super().__init__(f"host {name} was lost")
        self.name = name


class Call:
    """A method call under way on a host.

    Attributes:
        host: its name.
        reference: Ray's reference to the result, which may be passed to another host's method.
    """

    def __init__(self, hosts: RayHosts, host: str, reference: Any, argument: Call | None) -> None:
        self._hosts, self.host, self.reference, self._argument = hosts, host, reference, argument

    def result(self) -> Any:
        """Wait for the result.

        Raises:
            HostLost: the host was lost, or the one whose result is its argument.
            StagingFailed: the method raised.
        """
        try:
            return self._hosts.ray.get(self.reference)
        except self._hosts.actor_lost as error:
            self._hosts.lose(self.host)
            raise HostLost(self.host) from error
        except self._hosts.result_lost as error:
            raise self._source_lost() from error
        except self._hosts.method_raised as error:
            if self._argument is not None and isinstance(error.cause, self._hosts.actor_lost | self._hosts.result_lost):
                raise self._source_lost() from error
            raise StagingFailed(f"host {self.host}: {_cause(error)}: what is complete is kept") from None

    # untested: only when a host is lost between two calls
    def _source_lost(self) -> HostLost:
        """The host that holds the result: that of the argument's call if there is one."""
        name = self._argument.host if self._argument is not None else self.host
        self._hosts.lose(name)
        return HostLost(name)


class RayHosts:
    """One ``ClusterHost`` actor on each living node.

    Attributes:
        everyone: names of all initial hosts, "number: address".
        lost: names of the lost hosts, in the order of their loss.
    """

    def __init__(
        self,
        address: str,
        store: StoreOptions,
        destination: str,
        options: Options,
        classes: list[str] | None,
        report: Callable[[str], None],
    ) -> None:
        """Start the actors; Ray is connected already.

        Args:
            address: of the source; every host reaches it with credentials of its own.
            store: options for reaching it.
            destination: folder on each host; ``{node}`` in it becomes the host's number.
            options: how to stage.
            classes: the class list to write; None: not written.
            report: called with a line for each lost host.

        Raises:
            UsageError: a host cannot use the destination, or nodes share a machine and the folder's name lacks
                ``{node}``.
        """
        import ray
        from ray.exceptions import ObjectLostError, RayActorError, RayTaskError
        from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

        self.ray: Any = ray
        self.actor_lost, self.result_lost, self.method_raised = RayActorError, ObjectLostError, RayTaskError
        self._report = report
        self.lost: list[str] = []
        nodes = sorted(
            (node for node in self.ray.nodes() if node["Alive"]),
            key=lambda node: (node["NodeManagerAddress"], node["NodeName"], node["NodeID"]),
        )
        machines = {node["NodeManagerAddress"] for node in nodes}
        if len(machines) < len(nodes) and "{node}" not in destination:
            raise UsageError(f"{destination}: several nodes share one machine: write {{node}} into the folder's name")
        remote = self.ray.remote(num_cpus=0, max_restarts=0)(ClusterHost)
        self._actors: dict[str, Any] = {}
        for number, node in enumerate(nodes):
            folder = destination.replace("{node}", str(number))
            on_node = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            actor = remote.options(scheduling_strategy=on_node).remote(address, store, folder, options, classes)
            self._actors[f"{number}: {node['NodeManagerAddress']}"] = actor
        self.everyone = list(self._actors)
        for name, actor in self._actors.items():
            try:
                ray.get(actor.name.remote())
            except RayActorError as error:
                raise UsageError(f"host {name}: {_cause(error)}") from None

    def living(self) -> list[str]:
        """Names of the hosts that are not lost.

        Raises:
            StagingFailed: all are.
        """
        if not self._actors:
            raise StagingFailed("all hosts were lost: what is complete on them is kept")
        return list(self._actors)

    def call(self, name: str, method: str, argument: Any = None) -> Call:
        """Call a method of a host; another call as its argument passes that call's result from host to host.

        Raises:
            HostLost: the host was lost before.
        """
        if name not in self._actors:
            raise HostLost(name)
        remote = getattr(self._actors[name], method).remote
        if isinstance(argument, Call):
            return Call(self, name, remote(argument.reference), argument)
        return Call(self, name, remote() if argument is None else remote(argument), None)

    def lose(self, name: str) -> None:
        """Record that a host is lost."""
        if self._actors.pop(name, None) is not None:
            self.lost.append(name)
            self._report(f"host {name} is lost: the others stage its files")


@contextlib.contextmanager
def connected(cluster: str) -> Iterator[None]:
    """Connect to a Ray cluster: ``auto``, or ``host:port``.

    Raises:
        UsageError: no cluster answers.
    """
    import ray

    _check_answers(cluster)
    # Ray's threads print messages about lost hosts, which must not appear in the summary.
    with contextlib.redirect_stdout(sys.stderr):
        try:
            ray.init(address=cluster, log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, RuntimeError, ValueError) as error:
            raise UsageError(
                f"--cluster {cluster}: no Ray cluster answers ({type(error).__name__}): start one with `ray start`"
            ) from None
        try:
            yield
        finally:
            ray.shutdown()


def _check_answers(cluster: str) -> None:
    """Fail in seconds: Ray itself keeps trying for minutes."""
    if cluster == "auto":
        return
    host, _, port = cluster.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=CONNECT_S).close()
    except (OSError, ValueError) as error:
        raise UsageError(
            f"--cluster {cluster}: no Ray cluster answers: {error}: give auto, or host:port as `ray start` prints it"
        ) from None


def _cause(error: BaseException) -> str:
    """The last line of a remote error: the exception itself."""
    lines = [line.strip() for line in str(getattr(error, "cause", None) or error).splitlines() if line.strip()]
    return lines[-1][:300] if lines else type(error).__name__
