"""What clients may do: ACLs, and how they decide.

`acl_index` finds the ACLs that are about a resource, `decisions` says why something is allowed or not, and `grants`
remembers what one principal may do from one host. The rule: one ACL change is one version, and whatever was worked out
for another version does not count.
"""
