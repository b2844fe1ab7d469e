"""The books on disk: appended in transactions, never rewritten, never lower after a restart."""
