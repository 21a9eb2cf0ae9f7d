"""The lake's own upkeep as assets: compaction, retention, backups."""
