-- Who holds the lake's writer lock? Run in PostgreSQL itself; an advisory lock's key is kept in two halves.
select a.application_name, coalesce(a.client_addr::text, 'this machine') as host, a.xact_start::text as since
from pg_locks as l
inner join pg_stat_activity as a using (pid)
where l.locktype = 'advisory' and l.granted and (l.classid::bigint << 32) + l.objid::bigint = KEY
