"""A scripted upstream for every protocol of the gateway's clients."""
