"""Quotas of clients: how much each client may do, and how long a client has to wait that did more.

`windows` measures (pure), `limits` finds the limit that applies (pure), and `client_quotas` has both for every kind of
quota. The rule: while nobody has a quota of a kind, its attribute of `ClientQuotas` is None, and nothing is measured.
"""

from .client_quotas import ClientQuotas
from .limits import Limit, QuotaLimits
from .meter import RequestMeter, Stepwise
from .rate_quota import MutationQuota, RateQuota
from .windows import MutationTokens, QuotaWindows, Rate

__all__ = [
    "ClientQuotas",
    "Limit",
    "MutationQuota",
    "MutationTokens",
    "QuotaLimits",
    "QuotaWindows",
    "Rate",
    "RateQuota",
    "RequestMeter",
    "Stepwise",
]
