"""Audits: clients count records, and report the counts, so that tiers of a pipeline can be compared.

Clients count the records that they have written or handed out, by topic and time bucket. The comparison shows the
number of records lost between tiers. Counting (`counts`, `handed_out`, `ledger`), reports (`reports`) and comparison
(`comparison`, `verdicts`) are pure; `auditor` sends the reports. The one rule: a count is in exactly one report, and a
report that arrives twice counts once.
"""
