-- How many files and bytes has each table?
select table_name, file_count as files, file_size_bytes as bytes, delete_file_count as delete_files
from ducklake_table_info(current_database())
order by table_name;
