"""The application: routes, middleware and error handlers, put together once.

Owns the order of the layers. Knows no engine beyond its protocol. From the outside in: origins
(so that every answer carries its header), expectations, unexpected errors, keys, routes.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware

from streamglm.clock import Clock
from streamglm.config import Settings
from streamglm.core.engine import Engine, Library
from streamglm.edge.access import Expectations, Gate, Origins, keys_of
from streamglm.edge.conversations import ConversationRoutes
from streamglm.edge.meters import Meters
from streamglm.edge.refusals import Unexpected, on_http, on_named
from streamglm.edge.routes import Routes
from streamglm.edge.served import ServedModel
from streamglm.edge.wire import Direct
from streamglm.errors import StreamglmError

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]


def build_app(
    engine: Engine,
    model: ServedModel,
    settings: Settings,
    clock: Clock,
    *,
    library: Library | None = None,
    lifespan: Lifespan | None = None,
) -> Starlette:
    """The ASGI application of one server; `library` is what it has learned, where it learns, and
    `lifespan` owns the tasks behind `engine`.

    Raises `SettingError` for a key file that cannot be used.
    """
    meters = Meters(engine)
    app = Direct(
        routes=[
            *Routes(engine, model, settings, clock, meters).table(),
            *ConversationRoutes(library).table(),
        ],
        middleware=[
            Middleware(Origins, allowed=settings.cors_origin),
            Middleware(Expectations),
            Middleware(Unexpected),
            Middleware(Gate, keys=keys_of(settings, clock)),
        ],
        exception_handlers={StreamglmError: on_named, HTTPException: on_http},
        lifespan=lifespan,
    )
    app.router.redirect_slashes = False
    return app
