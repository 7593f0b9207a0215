"""`/v1/conversations`: what the server has learned, for its owners to see and to delete.

Owns the routes and their JSON. Knows no disk; shows numbers, never a token or a text. A deletion
answers once the files are gone.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamglm.core.engine import ConversationView, Library
from streamglm.edge.fields import clip
from streamglm.edge.refusals import json_response
from streamglm.errors import ConversationNotFound

PATH = "/v1/conversations"


class ConversationRoutes:
    """The handlers; without a `library` every one of them says that nothing is learned here."""

    def __init__(self, library: Library | None) -> None:
        self._library = library

    def table(self) -> list[Route]:
        """Every route with its methods."""
        return [
            Route(PATH, self.all, methods=["GET"]),
            Route(PATH, self.delete_all, methods=["DELETE"]),
            Route(PATH + "/{id}", self.one, methods=["GET"]),
            Route(PATH + "/{id}", self.delete_one, methods=["DELETE"]),
        ]

    async def all(self, request: Request) -> Response:
        data = [_entry(one) for one in self._learned.conversations()]
        return json_response({"object": "list", "data": data})

    async def one(self, request: Request) -> Response:
        return json_response(_entry(self._find(request)))

    async def delete_all(self, request: Request) -> Response:
        ids = [one.id for one in self._learned.conversations()]
        await self._learned.forget(ids)
        return json_response({"object": "list.deleted", "deleted": len(ids)})

    async def delete_one(self, request: Request) -> Response:
        name = self._find(request).id
        await self._learned.forget([name])
        return json_response({"object": "conversation.deleted", "id": name, "deleted": True})

    @property
    def _learned(self) -> Library:
        if self._library is None:
            raise ConversationNotFound(
                "This server learns no conversations; `--learn-conversations` is off."
            )
        return self._library

    def _find(self, request: Request) -> ConversationView:
        name = request.path_params["id"]
        for one in self._learned.conversations():
            if one.id == name:
                return one
        raise ConversationNotFound(f"No conversation `{clip(name)}` is learned here.")


def _entry(one: ConversationView) -> dict[str, Any]:
    return {"object": "conversation", **asdict(one)}
