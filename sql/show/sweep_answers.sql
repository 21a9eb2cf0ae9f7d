-- What was answered to requests ($request_ids) of a sweep ($sweep_id)? For conversations that go on.
select request_id, text, tool_calls, status, error_kind
from benchmark_results
where sweep_id = $sweep_id and request_id in (select unnest($request_ids::varchar[]));
