"""Spark pipelines beside the brokers. The modules here are the engine, which knows no verb; each verb has a folder.

    service           starts Spark and runs the registered verbs
    verbs             the registered verbs: the only module that names them
    declared_sources  records that a broker declares, and where their reported state goes
    status_board      the reported state of every row; `heartbeats` sends it
    events            the one thread in which a verb decides
    jobs, lanes       Spark jobs, a few at a time
    clusters          the clients of one process, by cluster

Owns no data and keeps no state: progress is kept in subscriptions, so a process may be killed at any time.
"""
