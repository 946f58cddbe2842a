"""An upstream that answers by script, in every protocol of the gateway's clients."""
