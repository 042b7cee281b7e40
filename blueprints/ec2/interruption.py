"""How an instance of EC2 asks whether it is taken back.

Source: https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html: 404 until then, two
minutes before; every 5 seconds is recommended. The service wants a session's token (IMDSv2).
"""

READER = """
provider, every = "ec2", 5


def notice():
    token = ask("/latest/api/token", {"X-aws-ec2-metadata-token-ttl-seconds": "60"}, "PUT")
    try:
        said = json.loads(ask("/latest/meta-data/spot/instance-action", {"X-aws-ec2-metadata-token": token}))
    except urllib.error.HTTPError as error:
        if error.code == 404:
            return None
        raise
    return said["action"], said["time"]
"""
