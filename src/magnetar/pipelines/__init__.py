"""What runs on Spark beside the brokers: copying topics to other clusters.

Owns no data and keeps no state: how far a topic is copied is a subscription of the topic itself.
"""
