"""Credentials of users: SCRAM, delegation tokens, GSSAPI, JAAS configurations, and sealed secrets."""
