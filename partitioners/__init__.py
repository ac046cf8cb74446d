"""One file per strategy: Profile, Cluster -> Plan."""
