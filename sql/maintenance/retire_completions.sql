-- Forgets the attempts (texts and figures) before $before; the jobs stay, with how they ended.
delete from completions where partition_date < $before;
