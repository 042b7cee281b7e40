"""The behaviour suite: whether a client keeps the provider contract, on a real account or on a double.

    wish = choose(client, Asking(image={"name": "debian-12-*"}))
    suite = Suite(Environment(client, wish, run_tags("me"), Journal(path)))
    report = suite.run()

The checks are data (`suite.CHECKS`), in the words of `blueprints.cloud.client` alone: a cloud of one's own is
accepted by them as ours are. They make machines, which cost; everything that is made is written to the journal
first, and ended again, whatever fails. It knows no Django, no database and no cloud's SDK.
"""
