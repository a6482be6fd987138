"""Who looks after what is secret in a store. `sealing` is what is done with it, `custodian` is who does it on a node."""
