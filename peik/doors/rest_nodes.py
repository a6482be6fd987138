"""REST: nodes. Who serves which bots, and asking one to let its bots go."""

from starlette.requests import Request
from starlette.responses import Response

from peik.doors.access import Access
from peik.doors.node_views import Nodes
from peik.doors.replies import Route, json_response


class NodeRoutes:
    def __init__(self, nodes: Nodes, access: Access) -> None:
        self._nodes = nodes
        self._access = access

    def table(self) -> tuple[Route, ...]:
        return (
            ("GET", "/v1/nodes", self.get_nodes, "listNodes", "nodes"),
            ("POST", "/v1/nodes/{name}/drain", self.drain_node, "drainNode", "nodes"),
            ("POST", "/v1/nodes/{name}/resume", self.resume_node, "resumeNode", "nodes"),
        )

    async def get_nodes(self, request: Request) -> Response:
        """Every node that lives, and the bots that it serves."""
        self._access.admit(request, "read").must_serve_all()
        return json_response(await self._nodes.page())

    async def drain_node(self, request: Request) -> Response:
        """Ask a node to let its bots go to the others, each as soon as nothing of it is in flight."""
        return await self._drain(request, is_draining=True)

    async def resume_node(self, request: Request) -> Response:
        """Let a node that was drained take bots again."""
        return await self._drain(request, is_draining=False)

    async def _drain(self, request: Request, *, is_draining: bool) -> Response:
        self._access.admit(request, "admin").must_serve_all()
        node = await self._nodes.drain(request.path_params["name"], is_draining=is_draining)
        return json_response(self._nodes.view(node), 202)
