"""How commands find a broker and log in to it: options, environment, profiles, Pulsar's client.conf."""
