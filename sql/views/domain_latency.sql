-- How fast is each domain answered, and how often not at all? By domain, domain × model, domain × model × worker. Warm
-- answers of all time; the same over a window, and the formulas, are in macros/domain_latency_between.
from domain_latency_between('-infinity', 'infinity')
