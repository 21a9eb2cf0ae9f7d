-- Which sequences between two has nobody landed, nor written off as lost, as ranges?
with known as (
    select seq as from_seq, seq as to_seq
    from stream_messages
    where stream = $stream and stream_created = $stream_created and seq between $first_seq and $last_seq
    union all
    select from_seq, to_seq
    from lost_messages
    where stream = $stream and stream_created = $stream_created and to_seq >= $first_seq and from_seq <= $last_seq
    union all
    select $first_seq - 1, $first_seq - 1
),

edges as (
    select
        max(to_seq) over (order by from_seq, to_seq rows unbounded preceding) as known_to,
        lead(from_seq, 1, $last_seq + 1) over (order by from_seq, to_seq) as next_from
    from known
)

select known_to + 1 as from_seq, next_from - 1 as to_seq
from edges
where next_from > known_to + 1
order by from_seq;
