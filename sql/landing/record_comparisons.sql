-- Records comparisons, in place of those that were made of the same.
delete from benchmark_comparisons where comparison_id in (select comparison_id from compared);
insert into benchmark_comparisons by name
select * from compared;
