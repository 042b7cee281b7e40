"""The behaviour suite: tests whether a client keeps the provider contract, on a real account or on a test double.

    wish = choose(client, Asking(image={"name": "debian-12-*"}))
    suite = Suite(Environment(client, wish, run_tags("me"), Journal(path)))
    report = suite.run()

The checks are data (`suite.CHECKS`) and use only `blueprints.cloud.client`, so a third-party cloud is tested in the
same way as ours. They create machines, which cost money. Everything that is created is first written to the journal,
and is deleted again whatever fails. The suite needs no Django, no database and no cloud SDK.
"""
