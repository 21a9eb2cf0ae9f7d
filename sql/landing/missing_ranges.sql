-- Which sequences between two has nobody landed, as ranges?
with landed as (
    select distinct seq
    from stream_messages
    where stream = $stream and stream_created = $stream_created and seq between $first_seq and $last_seq
),

edges as (
    select seq, lead(seq, 1, $last_seq + 1) over (order by seq) as next_seq
    from (select seq from landed union all select $first_seq - 1)
)

select seq + 1 as from_seq, next_seq - 1 as to_seq
from edges
where next_seq > seq + 1
order by from_seq;
