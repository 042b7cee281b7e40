"""This machine as a transport: processes and file operations under the lease's uid."""
