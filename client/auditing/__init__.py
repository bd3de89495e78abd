"""Audits: clients count records, and report the counts, so that tiers of a pipeline can be compared.

Clients count the records that they have written (`producing.audit`) or handed out (`consuming.audit`), by topic and
time bucket. The comparison shows the number of records lost between tiers. Counting (`counts`, `ledger`), reports
(`reports`) and comparison (`comparison`, `verdicts`) are pure; `auditor` reports at intervals. The one rule: a count is
in exactly one report, and a report that arrives twice counts once.
"""
