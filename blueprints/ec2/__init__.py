"""The kind `ec2`: machines on Amazon EC2, and on private clouds with a compatible API."""
