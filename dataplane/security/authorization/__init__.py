"""Authorization of clients: ACLs, and the decisions by them.

`acl_index` finds the ACLs that name a resource, `decision` gives the reason why an operation is allowed or not, and
`grants` caches the rights of a principal at a host. The rule: each ACL change is a new version, and results for another
version are invalid.
"""
