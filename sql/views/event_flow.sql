-- How did an orchestrator and its workers work together? One row a session with a flow. What the columns mean, and how to
-- ask for a few sessions sooner: macros/event_flow_of.
from event_flow_of(null::varchar [])
