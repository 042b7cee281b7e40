"""This machine as a transport: processes and file operations with the uid of the lease."""
