"""The kind `ec2`: machines at Amazon EC2, and at private clouds with a compatible API."""
