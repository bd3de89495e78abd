"""Auditing: clients count the records that they have written or handed out, by topic and time bucket, and report the
counts to a topic, so that tiers of a pipeline can be compared and what got lost between them is known by number.

Counting (`counts`, `handed_out`, `ledger`), reports (`reports`) and comparing (`comparison`, `verdicts`) are pure;
`auditor` sends the reports. The one rule: a count is in exactly one report, and a report that comes twice counts once.
"""
