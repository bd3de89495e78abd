"""All logs of a broker: their data folders, and the upkeep of what is in them."""
