"""Payloads of the well-known subjects: what analysts get typed columns of.

Belongs here: a pydantic model for each, and telling which one a payload fits. Does not belong here: the envelope around
it (``events``), the typed tables (``sql/views``, which read the same names).

A payload that does not fit its subject's model is still a record, with the reason; nothing here rejects anything.
Unknown fields are allowed and stay in ``events.payload``. null equals absent. Types are strict: ``"3"`` is no number.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

Whole = Annotated[int, BeforeValidator(lambda v: int(v) if isinstance(v, float) and v.is_integer() else v)]
"""A whole number, which JSON may write ``12`` or ``12.0``."""

Count = Annotated[Whole, Field(ge=0, le=2**53)]
"""No more than a double counts one by one: one huge number would break the sums of everybody's."""
Milliseconds = Annotated[float, Field(ge=0, le=1e12)]
"""Up to some thirty years, for the same reason."""


class _Payload(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class ChatTurn(_Payload):
    """One turn of a conversation. The text is optional; without it the turn still counts."""

    task: str
    role: str
    content: str | None = None
    tokens: Count | None = None


class ToolCall(_Payload):
    """One call of a tool by the agent that is the event's source."""

    call_id: str
    task: str
    tool: str
    duration_ms: Milliseconds
    ok: bool
    arguments: Any = None
    arguments_digest: str | None = None


class Search(_Payload):
    """One search of the notes."""

    query: str | None = None
    hits: Count
    latency_ms: Milliseconds


class SearchRequest(_Payload):
    """A search of the notes that is asked for; its report comes as another event."""

    query: str
    top: Count | None = None


class FlowNode(_Payload):
    """A node of a session's flow in one of its states: the session, an agent, or a task."""

    kind: Literal["node"]
    node_id: str
    node_type: Literal["session", "agent", "task"]
    state: Literal["declared", "started", "finished", "failed"]
    role: str | None = None
    agent: str | None = None
    name: str | None = None
    plan: str | None = None


class FlowEdge(_Payload):
    """An edge of a session's flow: ``from`` assigned ``to``, or ``from`` depends on ``to``."""

    kind: Literal["edge"]
    edge_id: str
    from_: str = Field(alias="from")
    to: str
    relation: Literal["assigned", "depends_on"]


FlowElement = Annotated[FlowNode | FlowEdge, Field(discriminator="kind")]

SEARCHES = "obsidian.semantic_search"
_REQUEST: TypeAdapter[Any] = TypeAdapter(SearchRequest)
_MODELS: Mapping[str, TypeAdapter[Any]] = {
    "llm.chat.persist": TypeAdapter(ChatTurn),
    "llm.tool_call": TypeAdapter(ToolCall),
    SEARCHES: TypeAdapter(Search),
    "llm.flow.lineage": TypeAdapter(FlowElement),
}
_NAMES: Mapping[type[_Payload], str] = {
    ChatTurn: "chat_turn",
    ToolCall: "tool_call",
    Search: "search",
    SearchRequest: "search_request",
    FlowNode: "flow_node",
    FlowEdge: "flow_edge",
}

REQUIRED_FIELDS = frozenset(
    field.alias or name for model in _NAMES for name, field in model.model_fields.items() if field.is_required()
)
"""Without one of them a payload has no typed row."""


def payload_type(subject: str, payload: Any) -> tuple[str | None, str | None]:
    """Which payload this is, and why it is none.

    Args:
        subject: today's name of it.
        payload: any JSON value.

    Returns:
        ``("tool_call", None)`` and so on; ``(None, reason)`` when the subject has a model that the payload does not
        fit; ``(None, None)`` when it has none.
    """
    model = _MODELS.get(subject)
    if subject == SEARCHES and isinstance(payload, dict) and payload.keys().isdisjoint(("hits", "latency_ms")):
        model = _REQUEST
    if model is None:
        return None, None
    if not isinstance(payload, dict):
        return None, "no payload" if payload is None else "the payload is no object"
    try:
        return _NAMES[type(model.validate_python(payload))], None
    except ValidationError as error:
        return None, _reason(error.errors(include_url=False, include_input=False)[0])


def _reason(error: ErrorDetails) -> str:
    """The first thing that is wrong, without the value that was found: it may be somebody's text."""
    names = [str(step) for step in error["loc"] if step not in ("node", "edge")]
    context = error.get("ctx", {})
    if error["type"].startswith("union_tag"):
        return "kind is missing or unknown; allowed: node, edge"
    if error["type"] == "missing":
        return f"{'.'.join(names)} is missing"
    if error["type"] == "literal_error":
        return f"{'.'.join(names)} is none of {context['expected']}"
    return f"{'.'.join(names)}: {error['msg'][:1].lower()}{error['msg'][1:]}"
