"""The local transport: processes and file operations on this machine, under the lease's uid."""
